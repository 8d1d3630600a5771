-- Read the places of some players on one board as one viewer sees it, and how fresh it is, in one step. Writes nothing.
--
-- A shadow-banned viewer sees the board with their own best on it, at its place; everybody else without it.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  hidden  as in apply_runs
--   4  board   sorted set; side key ":shadow" as in apply_runs
-- ARGV
--   1   viewer  player who looks; "": nobody in particular
--   2   bits    as in read_view
--   3…  one     player
-- Reply: {log, entry, definition, kind, members, viewer, then (rank shared composite) of each player}
--   the first five and viewer as in read_view
--   rank from 1, 0: not on the board; shared: competition rank; composite as text, "": not on the board

local log_key, boards_key, hidden_key, board_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local viewer, step = ARGV[1], 2 ^ tonumber(ARGV[2])
local reference = string.sub(board_key, #log_key - #'log' + 1)
local reply = {
  redis.call('HGETALL', log_key),
  redis.call('HGET', boards_key, reference) or '',
  redis.call('HGET', boards_key, '@' .. string.match(reference, '^[^:]+')) or '',
  redis.call('TYPE', board_key).ok,
  0,
  viewer ~= '' and redis.call('HGET', hidden_key, viewer) or '',
}
local own -- composite of the viewer's best, when only the viewer sees it
if string.match(reply[6], '^shadow') and redis.call('TYPE', board_key .. ':shadow').ok == 'zset' then
  own = redis.call('ZSCORE', board_key .. ':shadow', viewer) or nil
end
local there = reply[4] == 'zset' or (reply[4] == 'none' and own)
if not there then
  for i = 3, #ARGV do
    for _, value in ipairs({0, 0, ''}) do reply[#reply + 1] = value end
  end
  return reply
end

local function below(a, b) -- Lua's own < follows the server's locale, a sorted set compares bytes
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function member(index) -- as text: 7.2 gives a command the number 100000000 as 1e+08
  return redis.call('ZREVRANGE', board_key, string.format('%.0f', index), string.format('%.0f', index))[1]
end

reply[5] = redis.call('ZCARD', board_key)
local place -- index of the viewer's own entry, from 0
if own then
  reply[5] = reply[5] + 1
  local low = redis.call('ZCOUNT', board_key, '(' .. own, '+inf')
  local high = low + redis.call('ZCOUNT', board_key, own, own)
  while low < high do -- equal composites are in descending player order
    local middle = math.floor((low + high) / 2)
    if below(viewer, member(middle)) then low = middle + 1 else high = middle end
  end
  place = low
end

for i = 3, #ARGV do
  local player, rank, composite = ARGV[i], 0, ''
  if own and player == viewer then
    rank, composite = place + 1, own
  else
    local index = redis.call('ZREVRANK', board_key, player)
    if index then
      rank = index + 1
      if place and place <= index then rank = rank + 1 end
      composite = redis.call('ZSCORE', board_key, player)
    end
  end
  local shared = 0
  if rank > 0 then
    local better = (math.floor(tonumber(composite) / step) + 1) * step -- the least composite with more points
    shared = redis.call('ZCOUNT', board_key, string.format('%.0f', better), '+inf') + 1
    if own and tonumber(own) >= better then shared = shared + 1 end
  end
  reply[#reply + 1] = rank
  reply[#reply + 1] = shared
  reply[#reply + 1] = composite
end
return reply
