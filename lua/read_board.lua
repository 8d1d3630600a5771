-- Read a stretch of one board, a player's place on it, and how fresh it is, in one step. Writes nothing.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  board   sorted set
-- ARGV
--   1  player  "": read from rank `first` on; else the stretch around this player
--   2  first   first rank, from 1 (with a player: how many ranks above)
--   3  count   how many entries at most (with a player: how many ranks below)
-- Reply: {log as a flat list, registry entry or "", definition or "", type of the key, members, rank, first rank, entries}
--   rank: of the player, from 1, 0: not on the board; entries: flat list of player, composite text

local log_key, boards_key, board_key = KEYS[1], KEYS[2], KEYS[3]
local player, first, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reference = string.sub(board_key, #log_key - #'log' + 1)
local reply = {
  redis.call('HGETALL', log_key),
  redis.call('HGET', boards_key, reference) or '',
  redis.call('HGET', boards_key, '@' .. string.match(reference, '^[^:]+')) or '',
  redis.call('TYPE', board_key).ok,
  0, 0, 0, {},
}
if reply[4] ~= 'zset' then return reply end
reply[5] = redis.call('ZCARD', board_key)
local last
if player == '' then
  first, last = first - 1, first + count - 2
else
  local rank = redis.call('ZREVRANK', board_key, player)
  if not rank then return reply end
  reply[6] = rank + 1
  first, last = math.max(rank - first, 0), rank + count
end
if last >= first then
  reply[7] = first + 1
  -- As text: 7.2 gives a command the number 100000000 as 1e+08.
  reply[8] = redis.call('ZREVRANGE', board_key, string.format('%.0f', first), string.format('%.0f', last), 'WITHSCORES')
end
return reply
