-- A baseline: one run onto one board, with its rank before and after.
-- KEYS 1 board   ARGV 1 player, 2 score
-- Reply: {changed, rank before or -1, rank}, ranks from 0
local before = redis.call('ZREVRANK', KEYS[1], ARGV[1]) or -1
local changed = redis.call('ZADD', KEYS[1], 'GT', 'CH', ARGV[2], ARGV[1])
return {changed, before, redis.call('ZREVRANK', KEYS[1], ARGV[1])}
