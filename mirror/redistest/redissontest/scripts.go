package redissontest

// What each generation packs into a member, and takes out of it. A number before c0 is the length
// of the string that c0 stands for, and is not handed out when it is read.
const (
	packOld = `
local function pack(random, payload) return struct.pack('dLc0', tonumber(random), #payload, payload) end
local function payloadOf(member)
  local _, payload = struct.unpack('dLc0', member)
  return payload
end
`
	packNew = `
local function pack(random, payload) return struct.pack('Bc0Lc0', #random, random, #payload, payload) end
local function payloadOf(member)
  local _, payload = struct.unpack('Bc0Lc0', member)
  return payload
end
`
)

// Scripts over the ready list, the timer, the order list and the channel, in this order where they
// take them all.
const (
	// KEYS ready timer list channel, ARGV due random payload.
	offerScript = `
local member = pack(ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[1], member)
redis.call('RPUSH', KEYS[3], member)
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] == member then
  redis.call('PUBLISH', KEYS[4], ARGV[1])
end
`
	// KEYS ready timer list, ARGV now limit. What was pushed before a member that cannot be read
	// stays pushed.
	transferScript = `
local due = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
  redis.call('RPUSH', KEYS[1], payloadOf(member))
  redis.call('LREM', KEYS[3], 1, member)
end
if #due > 0 then
  redis.call('ZREM', KEYS[2], unpack(due))
end
return redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
`
	// KEYS ready.
	drainScript = `
local all = redis.call('LRANGE', KEYS[1], 0, -1)
redis.call('DEL', KEYS[1])
return all
`
	// KEYS list.
	peekScript = `
local member = redis.call('LINDEX', KEYS[1], 0)
return member and payloadOf(member)
`
	// KEYS list.
	readAllScript = `
local all = redis.call('LRANGE', KEYS[1], 0, -1)
for i, member in ipairs(all) do all[i] = payloadOf(member) end
return all
`
	// KEYS list, ARGV payload.
	containsScript = `
for _, member in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if payloadOf(member) == ARGV[1] then return 1 end
end
return 0
`
	// KEYS timer list, ARGV payload.
	removeScript = `
for i = 0, redis.call('LLEN', KEYS[2]) - 1 do
  local member = redis.call('LINDEX', KEYS[2], i)
  if payloadOf(member) == ARGV[1] then
    redis.call('ZREM', KEYS[1], member)
    redis.call('LREM', KEYS[2], 1, member)
    return 1
  end
end
return 0
`
	// KEYS timer list.
	pollScript = `
local member = redis.call('LPOP', KEYS[2])
if not member then return nil end
redis.call('ZREM', KEYS[1], member)
return payloadOf(member)
`
	// KEYS list, ARGV payloads. The timer keeps what the list loses.
	retainAllScript = `
local keep, changed = {}, 0
for _, payload in ipairs(ARGV) do keep[payload] = true end
for _, member in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if not keep[payloadOf(member)] then
    redis.call('LREM', KEYS[1], 1, member)
    changed = 1
  end
end
return changed
`
)
