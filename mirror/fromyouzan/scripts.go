package fromyouzan

import (
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/redis/go-redis/v9"
)

// These scripts make names of keys from what they read, which no Redis Cluster allows. The
// service's own servers cannot use one either. A script writes its record of a claimed job before
// it removes anything, so that an error between the two, such as a full memory, leaves the job at
// its place.

// claimScript takes jobs whose value is still the one that the caller has read. ARGV[4] is the
// kind. "timer" takes jobs that wait in one bucket for their due second and were never handed out.
// "ready" takes jobs in the ready list that no consumer holds. The other two are for a stopped
// server: "list" takes jobs in the ready list, "any" all others. ARGV[5..] are id, due second and
// value of each. KEYS: state, hand-over, ready list, buckets. It returns id, record and value of
// the taken jobs.
var claimScript = redis.NewScript(pair.Guard + `
local kind, reply = ARGV[4], {}
for i = 5, #ARGV, 3 do
	local id, due, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
	if redis.pcall('GET', id) == value and redis.call('HEXISTS', KEYS[2], id) == 0 then
		local here, other, first = false, false, nil
		for b = 4, #KEYS do
			local score = redis.call('ZSCORE', KEYS[b], id)
			if score then
				if tonumber(score) == tonumber(due) then here = true else other = true end
				if not first or tonumber(score) < tonumber(first) then first = score end
			end
		end
		local take = kind == 'any' or kind == 'timer' and here and not other
		if not first or kind == 'list' or kind == 'ready' or tonumber(first) < tonumber(due) then first = due end
		local record = first .. ' ' .. value
		if kind == 'list' or kind == 'ready' and not other then
			redis.call('HSET', KEYS[2], id, record)
			take = redis.call('LREM', KEYS[3], 1, id) == 1
			if not take then redis.call('HDEL', KEYS[2], id) end
		elseif take then
			redis.call('HSET', KEYS[2], id, record)
		end
		if take then
			for b = 4, #KEYS do redis.call('ZREM', KEYS[b], id) end
			redis.call('DEL', id) -- from here on servers skip what else names the job
			reply[#reply + 1] = id
			reply[#reply + 1] = record
		end
	end
end
return reply
`)

// ackScript forgets jobs ARGV[4..]: their values went at the claim. KEYS: state, hand-over. None
// can have gone.
var ackScript = redis.NewScript(pair.Guard + `
for i = 4, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return {}
`)

// restoreScript gives jobs ARGV[4..] back; one that was pushed again meanwhile stays as it was
// pushed. A server looks at it in its bucket at once and moves it to where it belongs. KEYS: state,
// hand-over, a bucket. It returns how many are back.
var restoreScript = redis.NewScript(pair.Guard + `
local back = 0
for i = 4, #ARGV do
	local first, value = (redis.call('HGET', KEYS[2], ARGV[i]) or ''):match('^(%S+) (.*)$')
	if first then
		if redis.call('SET', ARGV[i], value, 'NX') then
			redis.call('ZADD', KEYS[3], first, ARGV[i])
			back = back + 1
		end
		redis.call('HDEL', KEYS[2], ARGV[i])
	end
end
return back
`)
