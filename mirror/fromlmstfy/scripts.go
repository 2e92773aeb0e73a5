package fromlmstfy

import (
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/redis/go-redis/v9"
)

// These scripts make names of keys from what they read, which no Redis Cluster allows. The
// service's own servers cannot use one either. A script writes its record of a claimed job before
// it removes anything, so that an error between the two, such as a full memory, leaves the job at
// its place.

// timerScript takes members of the timer. ARGV[4] is the limit of bytes of values, which the last
// value may exceed; ARGV[5..] are member, score, job key and kind of each. A member whose score
// changed stays, and so does one whose value is not a text. A member without a value is dropped, as
// a server would do. KEYS: state, hand-over, timer. It returns the number of members that it
// examined and of those that are not a text, and job key, record and value of the taken ones.
var timerScript = redis.NewScript(pair.Guard + `
local room, reply = tonumber(ARGV[4]), {0, 0}
for i = 5, #ARGV, 4 do
	if room <= 0 then break end
	local member, score, job = ARGV[i], ARGV[i + 1], ARGV[i + 2]
	reply[1] = reply[1] + 1
	if tonumber(redis.call('ZSCORE', KEYS[3], member)) == tonumber(score) then
		local value = redis.pcall('GET', job)
		if type(value) == 'table' then
			reply[2] = reply[2] + 1
		else
			if value then
				local record = ARGV[i + 3] .. ' ' .. score .. ' ' .. redis.call('PTTL', job) .. ' ' .. member
				if redis.call('HSETNX', KEYS[2], job, record) == 1 then
					room = room - #value
					reply[#reply + 1] = job
					reply[#reply + 1] = record
					reply[#reply + 1] = value
				end
			end
			redis.call('ZREM', KEYS[3], member)
		end
	end
end
return reply
`)

// listScript takes elements from the tail of a list, where servers take them: up to ARGV[4]
// elements, or a few more than ARGV[5] bytes of values. ARGV[6] is the prefix of job keys, ARGV[7]
// the kind. If an element cannot be read, or its value is not a text, the script moves it to
// KEYS[4] if ARGV[8] is 1; otherwise it ends. KEYS: state, hand-over, list, elements set aside. It
// returns the numbers of elements that it took, that it could not read and that are left, and for
// each job its key, record and value.
var listScript = redis.NewScript(pair.Guard + `
local room, reply = tonumber(ARGV[5]), {0, 0, 0}
while reply[1] < tonumber(ARGV[4]) and room > 0 do
	local element = redis.call('LINDEX', KEYS[3], -1)
	if not element then break end
	local job, value = ARGV[6] .. element:sub(5), {}
	if #element > 4 and element:byte(3) + 256 * element:byte(4) == #element - 4 then value = redis.pcall('GET', job) end
	if type(value) == 'table' then
		reply[2] = reply[2] + 1
		if ARGV[8] ~= '1' then break end
		redis.call('RPOPLPUSH', KEYS[3], KEYS[4])
	else
		if value then
			local record = ARGV[7] .. ' 0 ' .. redis.call('PTTL', job) .. ' ' .. element
			if redis.call('HSETNX', KEYS[2], job, record) == 1 then
				room = room - #value
				reply[#reply + 1] = job
				reply[#reply + 1] = record
				reply[#reply + 1] = value
			end
		end
		redis.call('RPOP', KEYS[3])
	end
	reply[1] = reply[1] + 1
end
reply[3] = redis.call('LLEN', KEYS[3])
return reply
`)

// valueScript takes values that nothing names: ARGV[4..] are job keys. They stay where they are
// until their ack, as all values do. KEYS: state, hand-over. It returns job key, record and value
// of each.
var valueScript = redis.NewScript(pair.Guard + `
local reply = {}
for i = 4, #ARGV do
	local value = redis.pcall('GET', ARGV[i])
	if type(value) == 'string' then
		local record = 'u- 0 ' .. redis.call('PTTL', ARGV[i]) .. ' '
		if redis.call('HSETNX', KEYS[2], ARGV[i], record) == 1 then
			reply[#reply + 1] = ARGV[i]
			reply[#reply + 1] = record
			reply[#reply + 1] = value
		end
	end
end
return reply
`)

// ackScript ends jobs ARGV[4..] at lmstfy: their values go. One whose value went before stays in
// the hand-over key, and the reply has its place in ARGV, from 0. KEYS: state, hand-over.
var ackScript = redis.NewScript(pair.Guard + `
local gone = {}
for i = 4, #ARGV do
	if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
		if redis.call('UNLINK', ARGV[i]) == 1 then redis.call('HDEL', KEYS[2], ARGV[i]) else gone[#gone + 1] = i - 4 end
	end
end
return gone
`)

// restoreScript gives jobs ARGV[4..] back, each to where it was. KEYS: state, hand-over, timer,
// ready, dead letters. It returns how many are back.
var restoreScript = redis.NewScript(pair.Guard + `
local back = 0
for i = 4, #ARGV do
	local kind, score, raw = (redis.call('HGET', KEYS[2], ARGV[i]) or ''):match('^(%a)%S (%S+) %S+ (.*)$')
	if kind and redis.call('EXISTS', ARGV[i]) == 1 then
		if kind == 't' then redis.call('ZADD', KEYS[3], 'NX', score, raw)
		elseif kind == 'r' then redis.call('RPUSH', KEYS[4], raw)
		elseif kind == 'd' then redis.call('RPUSH', KEYS[5], raw) end
		back = back + 1
	end
	redis.call('HDEL', KEYS[2], ARGV[i])
end
return back
`)
