-- Read a stretch of one board as one viewer sees it, and how fresh it is, in one step. Writes nothing.
--
-- A shadow-banned viewer sees the board with their own best on it, at its place; everybody else without it.
--
-- KEYS
--   1  log     as in apply_runs
--   2  boards  as in apply_runs
--   3  hidden  as in apply_runs
--   4  board   sorted set; side key ":shadow" as in apply_runs
-- ARGV
--   1  viewer     player who looks; "": nobody in particular
--   2  bits       low bits of a composite that are no points: entries that differ only there share a competition rank
--   3  mode       rank: from rank `first` on; around: `first` entries above `player` and `count` below;
--                 after, before: the entries next to the place of `composite` and `player`, which itself is left out
--   4  player     of around, after and before
--   5  composite  of after and before, as text
--   6  first      see mode, from 1
--   7  count      how many entries at most
-- Reply: {log, entry, definition, kind, members, rank, first rank, entries, shared rank, viewer}
--   the first eight as in read_board; members, ranks and entries as the viewer sees them
--   shared rank: competition rank of the first entry; viewer: what the hidden hash has of the viewer, "": not hidden

local log_key, boards_key, hidden_key, board_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local viewer, step, mode, player = ARGV[1], 2 ^ tonumber(ARGV[2]), ARGV[3], ARGV[4]
local composite, first, count = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local reference = string.sub(board_key, #log_key - #'log' + 1)
local reply = {
  redis.call('HGETALL', log_key),
  redis.call('HGET', boards_key, reference) or '',
  redis.call('HGET', boards_key, '@' .. string.match(reference, '^[^:]+')) or '',
  redis.call('TYPE', board_key).ok,
  0, 0, 0, {}, 0,
  viewer ~= '' and redis.call('HGET', hidden_key, viewer) or '',
}
local own -- composite of the viewer's best, when only the viewer sees it
if string.match(reply[10], '^shadow') and redis.call('TYPE', board_key .. ':shadow').ok == 'zset' then
  own = redis.call('ZSCORE', board_key .. ':shadow', viewer) or nil
end
if reply[4] ~= 'zset' and (reply[4] ~= 'none' or not own) then return reply end

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

-- How many public entries rank above a place, which itself counts when `with` is true and somebody is there.
local function above(points, name, with)
  local low = redis.call('ZCOUNT', board_key, '(' .. points, '+inf')
  local high = low + redis.call('ZCOUNT', board_key, points, points)
  while low < high do -- equal composites are in descending player order
    local middle = math.floor((low + high) / 2)
    local found = range(middle, middle)[1]
    if below(found, name) or (not with and found == name) then high = middle else low = middle + 1 end
  end
  return low
end

local members = redis.call('ZCARD', board_key)
local place = own and above(own, viewer, false) -- index of the viewer's own entry, from 0
if own then members = members + 1 end
reply[5] = members

local function seen(index) return place and place <= index and index + 1 or index end -- of a public index

local function index_of(name) -- from 0; nil: not on the board
  if own and name == viewer then return place end
  local rank = redis.call('ZREVRANK', board_key, name)
  return rank and seen(rank)
end

local last
if mode == 'rank' then
  first, last = first - 1, first + count - 2
elseif mode == 'around' then
  local index = index_of(player)
  if not index then return reply end
  reply[6] = index + 1
  first, last = math.max(index - first, 0), index + count
else
  local index = above(composite, player, mode == 'after')
  if own then
    local number, mine = tonumber(composite), tonumber(own)
    local before = mine > number or (mine == number and (below(player, viewer) or (mode == 'after' and player == viewer)))
    if before then index = index + 1 end
  end
  if mode == 'after' then
    first, last = index, index + count - 1
  else
    first, last = math.max(index - count, 0), index - 1
  end
end
last = math.min(last, members - 1)
if last < first then return reply end
reply[7] = first + 1
if not place or place > last then
  reply[8] = range(first, last, 'WITHSCORES')
elseif place < first then
  reply[8] = range(first - 1, last - 1, 'WITHSCORES')
else
  local entries = place > first and range(first, place - 1, 'WITHSCORES') or {}
  entries[#entries + 1], entries[#entries + 2] = viewer, own
  local rest = last > place and range(place, last - 1, 'WITHSCORES') or {}
  for i = 1, #rest do entries[#entries + 1] = rest[i] end
  reply[8] = entries
end
local better = (math.floor(tonumber(reply[8][2]) / step) + 1) * step -- the least composite with more points
reply[9] = redis.call('ZCOUNT', board_key, string.format('%.0f', better), '+inf') + 1
if own and tonumber(own) >= better then reply[9] = reply[9] + 1 end
return reply
