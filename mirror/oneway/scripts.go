package oneway

import (
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/redis/go-redis/v9"
)

// asideScript moves jobs ARGV[4..] to those set aside. KEYS: state, hand-over, aside.
var asideScript = redis.NewScript(pair.Guard + `
local moved = 0
for i = 4, #ARGV do
	local record = redis.call('HGET', KEYS[2], ARGV[i])
	if record then
		redis.call('HSET', KEYS[3], ARGV[i], record)
		redis.call('HDEL', KEYS[2], ARGV[i])
		moved = moved + 1
	end
end
return moved
`)
