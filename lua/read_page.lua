-- Read the entries below a place that is named by composite and player, not by rank: stable while others write.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  board   sorted set
-- ARGV
--   1  composite  of the last entry of the page before, as text; "": from the top
--   2  player     of that entry
--   3  count      how many entries at most
-- Reply: as read_board, rank always 0
-- Order of a board: composite descending, then player in descending byte order, as ZREVRANGE gives it.

local log_key, boards_key, board_key = KEYS[1], KEYS[2], KEYS[3]
local composite, player, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local reference = string.sub(board_key, #log_key - #'log' + 1)
local reply = {
  redis.call('HGETALL', log_key),
  redis.call('HGET', boards_key, reference) or '',
  redis.call('HGET', boards_key, '@' .. string.match(reference, '^[^:]+')) or '',
  redis.call('TYPE', board_key).ok,
  0, 0, 0, {},
}
if reply[4] ~= 'zset' then return reply end

local function below(a, b) -- Lua's own < follows the server's locale, a sorted set compares bytes
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function range(low, high, ...) -- as text: 7.2 gives a command the number 100000000 as 1e+08
  return redis.call('ZREVRANGE', board_key, string.format('%.0f', low), string.format('%.0f', high), ...)
end

reply[5] = redis.call('ZCARD', board_key)
local first = 0
if composite ~= '' then
  -- Above are all greater composites, and of the equal ones those not below the player.
  first = redis.call('ZCOUNT', board_key, '(' .. composite, '+inf')
  local low, high = first, first + redis.call('ZCOUNT', board_key, composite, composite)
  while low < high do -- equal composites are in descending player order: find the first one below the player
    local middle = math.floor((low + high) / 2)
    if below(range(middle, middle)[1], player) then high = middle else low = middle + 1 end
  end
  first = low
end
reply[7] = first + 1
reply[8] = range(first, first + count - 1, 'WITHSCORES')
return reply
