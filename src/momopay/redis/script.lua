-- The rate budget of one account. The arithmetic is RateBudget's (_ratelimit/budget.py gives the reasons), in whole
-- microseconds of this server's clock, which the line put before this one reads into `now`. Redis runs one script at
-- a time, so nothing here needs a lock.
--
-- KEYS[1]  a hash: log ("time lane-letter" words in order), stop and born (times), members ("id:time", when they last asked)
-- ARGV     operation (reserve, stop, stopped), member, requests, window, lane (P payment, R read, L poll), earliest, span
--   earliest  for `reserve`: no slot sooner than so long from now
--   span      for `reserve` the longest delay of use, for `stop` its length
-- Returns  delay, what is left of a stop, free slots of this window, members seen in the last two windows, born
local operation, member, requests, window = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lane, earliest, span = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local state = redis.call('HMGET', KEYS[1], 'log', 'stop', 'members', 'born')
local stop, born = tonumber(state[2] or 0), tonumber(state[4] or now)
local slots, lanes, polls = {}, {}, {}
for time, letter in string.gmatch(state[1] or '', '(%d+)(%a)') do
  time = tonumber(time)
  if time + window > now then
    slots[#slots + 1], lanes[#lanes + 1] = time, letter
    if letter == 'L' then polls[#polls + 1] = time end
  end
end

-- Lua's own notation of large numbers would drop digits.
local function whole(time) return string.format('%.0f', time) end

local members = { member .. ':' .. whole(now) }
for id, seen in string.gmatch(state[3] or '', '(%w+):(%d+)') do
  if id ~= member and tonumber(seen) + 2 * window > now then members[#members + 1] = id .. ':' .. seen end
end

local function place_of(time) -- after all that are not later
  local place = #slots
  while place > 0 and slots[place] > time do place = place - 1 end
  return place
end

local function fits(slot, share)
  local place = place_of(slot)
  if place >= share and slots[place - share + 1] + window > slot then return false end
  for i = math.max(place + 1, requests), math.min(place + requests, #slots) do
    local before = i - requests + 1
    if slots[i] < (before <= place and slots[before] or slot) + window then return false end
  end
  return true
end

local floor = math.floor(requests / 8)
local pace = math.ceil(window / math.max(1, floor))
local function share(slot, queued)
  if lane ~= 'L' and not queued and #polls == 0 then return requests end
  local recent = 0
  for i = 1, #polls do
    if polls[i] > slot - window and polls[i] <= slot then recent = recent + 1 end
  end
  local unused = math.max(0, floor - recent)
  if lane == 'L' then
    local paced = unused > 0 and (#polls == 0 or polls[#polls] + pace <= slot)
    return requests - (paced and 0 or math.floor(requests / 4))
  end
  return requests - unused - ((queued and lane == 'R') and math.floor(requests / 10) or 0)
end

local function first_free(start)
  if fits(start, share(start, false)) then return start end
  local times = {}
  for i = 1, #slots do times[i] = slots[i] + window end
  if lane == 'L' and #polls > 0 then times[#times + 1] = polls[#polls] + pace end
  table.sort(times)
  for i = 1, #times do
    if times[i] > start and fits(times[i], share(times[i], true)) then return times[i] end
  end
end

local slot = now
if operation == 'reserve' then
  slot = first_free(math.max(now + earliest, stop))
  if slot - now <= span then
    local place = place_of(slot) + 1
    table.insert(slots, place, slot)
    table.insert(lanes, place, lane)
  end
elseif operation == 'stop' then
  stop = math.max(stop, now + span)
end

local words = {}
for i = 1, #slots do -- a stop revokes the slots between now and its end
  if slots[i] <= now or slots[i] >= stop then words[#words + 1] = whole(slots[i]) .. lanes[i] end
end
redis.call('HSET', KEYS[1], 'log', table.concat(words, ' '), 'stop', whole(stop), 'born', whole(born),
  'members', table.concat(members, ' '))
local last = math.max(now, stop, slots[#slots] or 0)
redis.call('PEXPIRE', KEYS[1], whole(math.ceil((last - now + 2 * window) / 1000)))
return { slot - now, math.max(0, stop - now), math.max(0, requests - #words), #members, born }
