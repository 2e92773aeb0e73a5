package mirror

import (
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/redis/go-redis/v9"
)

// claimScript moves entries from Redisson's keys into the hand-over key: up to ARGV[4] entries, or
// a few more than ARGV[5] bytes of them. It takes them from the head of the list; when the list is
// empty it takes entries that are only in the timer. A member without a score goes to the orphans,
// unless it is the second occurrence of a claimed entry. KEYS: state, timer, list, hand-over,
// orphans. It returns the number of list elements or ghosts that it took, the number of orphans,
// the numbers of entries in the hand-over key and in the timer, and the entries as member and
// score.
var claimScript = redis.NewScript(pair.Guard + `
local limit, room = tonumber(ARGV[4]), tonumber(ARGV[5])
local reply, taken, orphans = {0, 0, 0, 0}, 0, 0
local function claim(member, score)
	redis.call('ZADD', KEYS[4], score, member)
	redis.call('ZREM', KEYS[2], member)
	reply[#reply + 1] = member
	reply[#reply + 1] = score
end
local read = 1
while taken < limit and room > 0 do
	local members, used = redis.call('LRANGE', KEYS[3], 0, math.min(read, limit - taken) - 1), 0
	if #members == 0 then break end
	while used < #members and room > 0 do
		used = used + 1
		local member = members[used]
		room = room - #member
		local score = redis.call('ZSCORE', KEYS[2], member)
		if score then
			claim(member, score)
		elseif not redis.call('ZSCORE', KEYS[4], member) then
			redis.call('RPUSH', KEYS[5], member)
			orphans = orphans + 1
		end
	end
	redis.call('LTRIM', KEYS[3], used, -1)
	taken, read = taken + used, math.min(32, 2 * read)
end
if taken == 0 then
	while taken < limit and room > 0 do
		local ghost = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
		if not ghost[1] then break end
		claim(ghost[1], ghost[2])
		taken, room = taken + 1, room - #ghost[1]
	end
end
reply[1], reply[2], reply[3], reply[4] = taken, orphans, redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[2])
return reply
`)

// leftScript reads entries from the hand-over key, or those set aside, up to ARGV[1], or a few more
// than ARGV[2] bytes of them. Within a script Redis gives scores as the text that it keeps. KEYS:
// hand-over or aside.
var leftScript = redis.NewScript(`
local room, reply = tonumber(ARGV[2]), {}
for at = 0, tonumber(ARGV[1]) - 1 do
	local one = redis.call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')
	if not one[1] or room <= 0 then break end
	room = room - #one[1]
	reply[#reply + 1] = one[1]
	reply[#reply + 1] = one[2]
end
return reply
`)

// ackScript removes the members ARGV[4..] from the hand-over key. KEYS: state, hand-over.
var ackScript = redis.NewScript(pair.Guard + `
local removed = 0
for i = 4, #ARGV do removed = removed + redis.call('ZREM', KEYS[2], ARGV[i]) end
return removed
`)

// asideScript moves the members ARGV[4..] from the hand-over key to the entries set aside. KEYS:
// state, hand-over, aside.
var asideScript = redis.NewScript(pair.Guard + `
local moved = 0
for i = 4, #ARGV do
	local score = redis.call('ZSCORE', KEYS[2], ARGV[i])
	if score then
		redis.call('ZADD', KEYS[3], score, ARGV[i])
		redis.call('ZREM', KEYS[2], ARGV[i])
		moved = moved + 1
	end
end
return moved
`)

// restoreScript gives the members ARGV[4..] of the hand-over key back to Redisson, and wakes its
// processes if the first of all is among them. KEYS: state, timer, list, hand-over, channel.
var restoreScript = redis.NewScript(pair.Guard + `
local restored, mine = 0, {}
for i = 4, #ARGV do
	local score = redis.call('ZSCORE', KEYS[4], ARGV[i])
	if score then
		if redis.call('ZADD', KEYS[2], 'NX', score, ARGV[i]) == 1 then
			redis.call('RPUSH', KEYS[3], ARGV[i])
			mine[ARGV[i]] = true
		end
		redis.call('ZREM', KEYS[4], ARGV[i])
		restored = restored + 1
	end
end
local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if head[1] and mine[head[1]] then redis.call('PUBLISH', KEYS[5], head[2]) end
return restored
`)

// orphansScript moves up to ARGV[4] orphans, or a few more than ARGV[5] bytes of them, to the end
// of the list. KEYS: state, orphans, list. It returns how many.
var orphansScript = redis.NewScript(pair.Guard + `
local limit, room, moved = tonumber(ARGV[4]), tonumber(ARGV[5]), 0
while moved < limit and room > 0 do
	local member = redis.call('LRANGE', KEYS[2], 0, 0)[1]
	if not member then break end
	redis.call('RPUSH', KEYS[3], member)
	redis.call('LTRIM', KEYS[2], 1, -1)
	moved, room = moved + 1, room - #member
end
return moved
`)

// returnScript writes jobs back as entries and keeps their ids until they are gone from Belfry.
// ARGV[4..] are id, score and member of each. An existing entry stays as it is. The script wakes
// Redisson's processes if the first entry of all is among those it wrote. KEYS: state, timer, list,
// returned, channel. It returns the number of entries that it wrote.
var returnScript = redis.NewScript(pair.Guard + `
local written, mine = 0, {}
for i = 4, #ARGV, 3 do
	local id, score, member = ARGV[i], ARGV[i + 1], ARGV[i + 2]
	if redis.call('SISMEMBER', KEYS[4], id) == 0 then
		if redis.call('ZADD', KEYS[2], 'NX', score, member) == 1 then
			redis.call('RPUSH', KEYS[3], member)
			mine[member] = true
			written = written + 1
		end
		redis.call('SADD', KEYS[4], id)
	end
end
local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if head[1] and mine[head[1]] then redis.call('PUBLISH', KEYS[5], head[2]) end
return written
`)

// deliverScript puts the payloads of due jobs on the ready list and keeps their ids until they are
// gone from Belfry: ARGV[4..] are id and payload of each. One whose id is there already has been
// put there before. KEYS: state, ready, delivered. It returns how many were put.
var deliverScript = redis.NewScript(pair.Guard + `
local added = 0
for i = 4, #ARGV, 2 do
	if redis.call('SISMEMBER', KEYS[3], ARGV[i]) == 0 then
		redis.call('RPUSH', KEYS[2], ARGV[i + 1])
		redis.call('SADD', KEYS[3], ARGV[i])
		added = added + 1
	end
end
return added
`)

// forgetScript forgets ids ARGV[4..] of jobs that are gone from Belfry. KEYS: state, returned or
// delivered.
var forgetScript = redis.NewScript(pair.Guard + `
local gone = 0
for i = 4, #ARGV do gone = gone + redis.call('SREM', KEYS[2], ARGV[i]) end
return gone
`)
