package pair

import "github.com/redis/go-redis/v9"

// Guard begins every script that changes something. It refuses scripts of a process that was
// overtaken, scripts that the network delayed until after a later one, and scripts for another
// cluster or queue than the one that mirrors the Redis queue. KEYS[1] is the state. ARGV[1..3] are
// the cluster, the queue, and a turn: the fence, and a direction with a number that grows from
// script to script. A script's own ARGV begin with the fourth.
//
// Redis does not undo a script that fails halfway. So each script writes an entry first, and then
// the record that the entry exists.
const Guard = `
local fence, way, turn = ARGV[3]:match('^(%d+) (%l+) (%d+)$')
local owner = redis.call('HMGET', KEYS[1], 'cluster', 'queue', 'fence', way, 'ended')
local ours = owner[1] or owner[5] == ARGV[1]
if owner[1] and (owner[1] ~= ARGV[1] or owner[2] ~= ARGV[2]) then
	return redis.error_reply('BELFRYOWNER ' .. owner[1] .. ' ' .. owner[2])
end
if owner[3] and ours and tonumber(owner[3]) > tonumber(fence) then
	return redis.error_reply('BELFRYFENCE ' .. owner[3] .. ' ' .. KEYS[1])
end
if owner[3] ~= fence or not ours then
	redis.call('HSET', KEYS[1], 'cluster', ARGV[1], 'queue', ARGV[2], 'fence', fence, 'in', 0, 'out', 0)
	redis.call('HDEL', KEYS[1], 'ended')
	redis.call('PERSIST', KEYS[1])
elseif owner[4] and tonumber(owner[4]) >= tonumber(turn) then
	return redis.error_reply('BELFRYTURN ' .. owner[4])
end
redis.call('HSET', KEYS[1], way, turn)
`

// fenceScript makes the guard refuse earlier holders. KEYS: state.
var fenceScript = redis.NewScript(Guard + `return 1`)

// DropScript removes fields ARGV[4..] from a hash of claimed jobs. KEYS: state, hand-over.
var DropScript = redis.NewScript(Guard + `
local dropped = 0
for i = 4, #ARGV do dropped = dropped + redis.call('HDEL', KEYS[2], ARGV[i]) end
return dropped
`)

// endScript removes the mirror's keys, unless one of KEYS[3..] is not empty; then it names that
// key. Of the state it leaves for a day the fence and the cluster that it belongs to. A process
// that was overtaken may yet wake up, and fences of another cluster are not comparable. KEYS:
// state, the key to be removed, and the others.
var endScript = redis.NewScript(Guard + `
for i = 3, #KEYS do
	if redis.call('EXISTS', KEYS[i]) == 1 then return redis.error_reply('BELFRYLEFT ' .. KEYS[i]) end
end
redis.call('UNLINK', KEYS[2])
redis.call('HSET', KEYS[1], 'ended', ARGV[1])
redis.call('HDEL', KEYS[1], 'cluster', 'queue', 'ready', 'in', 'out')
return redis.call('EXPIRE', KEYS[1], 86400)
`)
