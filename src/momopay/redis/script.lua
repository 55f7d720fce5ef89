-- The rate budget of one account. The arithmetic is SlotLog's (_ratelimit/slot_log.py gives the reasons), in whole
-- microseconds of this server's clock, which the line put before this one reads into `now`. Redis runs one script at
-- a time, so nothing here needs a lock. A slot is taken only when it has come, so none is later than `now`.
--
-- KEYS[1]  a hash:
--   now      when this was written; window: the longest that was asked with
--   slots    "time lane-letter" words in order; count: how many were ever taken
--   stop     until when nothing is handed out; asked: "lane-letter:time", when each lane was last asked for
--   members  "id:seen:payments:until": when each process last asked, and how many payments wait there until when
-- ARGV     operation (reserve, stop), member, requests, window, lane (P payment, R read, L poll),
--          the call's Place: queued (1 or 0), before, same, payments; span: for `stop`, its length
-- Returns  delay, what is left of a stop, count, this member's number among the members, members, now, slots
local operation, member, requests, window, lane = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local queued, before, same, payments = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local GRACE = 1000000 -- how long a process may take to wake up for a payment's slot

local state = redis.call('HMGET', KEYS[1], 'slots', 'count', 'stop', 'asked', 'members', 'window', 'now')
-- The clock may have been set back. Then everything counts as written just now.
local shift = math.max(0, tonumber(state[7] or now) - now)
local count, stop = tonumber(state[2] or 0), tonumber(state[3] or shift) - shift
local longest = math.max(window, tonumber(state[6] or 0))
local slots, letters, polls = {}, {}, {}
for time, letter in string.gmatch(state[1] or '', '(%d+)(%a)') do
  time = tonumber(time) - shift
  if time + longest > now then
    slots[#slots + 1], letters[#letters + 1] = time, letter
    if letter == 'L' then polls[#polls + 1] = time end
  end
end
local asked = { P = -math.huge, R = -math.huge, L = -math.huge }
for letter, time in string.gmatch(state[4] or '', '(%a):(%d+)') do asked[letter] = tonumber(time) - shift end

-- Lua's own notation of large numbers would drop digits.
local function whole(time) return string.format('%.0f', time) end

local members, number, waiting, own_until = {}, 0, 0, 0
for id, seen, many, till in string.gmatch(state[5] or '', '(%w+):(%d+):(%d+):(%d+)') do
  seen, till = tonumber(seen) - shift, tonumber(till) - shift
  if id == member then
    own_until = till
  elseif seen + 2 * window > now then
    members[#members + 1] = table.concat({ id, whole(seen), many, whole(math.max(0, till)) }, ':')
    if id < member then number = number + 1 end
    if till > now then waiting = waiting + tonumber(many) end
  end
end

local floor = math.floor(requests / 8)
local pace = math.ceil(window / math.max(1, floor))
local function share(slot, is_queued)
  local since = now - 2 * window
  local is_paying = asked.P > since
  if lane == 'L' then return requests - ((is_paying or asked.R > since) and math.floor(requests / 4) or 0) end
  local held_back = 0
  if asked.L > since then
    local recent = 0
    for i = 1, #polls do if polls[i] + window > slot then recent = recent + 1 end end
    held_back = math.max(0, floor - recent)
  end
  if lane == 'R' and is_queued and is_paying then held_back = held_back + math.floor(requests / 4) end
  return requests - held_back
end

local function fits(slot, most)
  return #slots < most or slots[#slots - most + 1] + window <= slot
end

local function after_all(start, most, ahead)
  local rest = ahead % most
  local place = #slots - most + rest + 1
  if place >= 1 then start = math.max(start, slots[place] + window) end
  return start + (ahead - rest) / most * window
end

local function of_the_floor(start)
  if #polls > 0 then start = math.max(start, polls[#polls] + pace) end
  if #polls >= floor then start = math.max(start, polls[#polls - floor + 1] + window) end
  return fits(start, requests) and start or after_all(start, requests, 0)
end

local function expect()
  local start, ahead, most = math.max(now, stop), before + same, share(math.max(now, stop), queued)
  if lane ~= 'P' then
    ahead = ahead + waiting -- payments of other processes
    if waiting > 0 then most = share(start, true) end
  end
  if ahead < most and fits(start, most - ahead) then return start end
  local slot, later = start, after_all(start, share(start, true), ahead)
  while later > slot do slot, later = later, after_all(start, share(later, true), ahead) end
  if lane == 'L' and floor > 0 then slot = math.min(slot, of_the_floor(start) + pace * same) end
  return slot
end

local slot = now
if operation == 'reserve' then
  asked[lane] = now
  slot = expect()
  if slot <= now then
    slots[#slots + 1], letters[#letters + 1], count = now, lane, count + 1
    if lane == 'P' then payments = math.max(0, payments - 1) end
  elseif lane == 'P' then
    own_until = math.max(own_until, slot + GRACE)
  end
else
  stop = math.max(stop, now + tonumber(ARGV[10]))
end
members[#members + 1] = table.concat({ member, whole(now), whole(payments), whole(math.max(0, own_until)) }, ':')

local words, lanes = {}, {}
for i = 1, #slots do words[i] = whole(slots[i]) .. letters[i] end
for letter, time in pairs(asked) do if time > 0 then lanes[#lanes + 1] = letter .. ':' .. whole(time) end end
local log = table.concat(words, ' ')
redis.call('HSET', KEYS[1], 'slots', log, 'count', whole(count), 'stop', whole(math.max(0, stop)),
  'asked', table.concat(lanes, ' '), 'members', table.concat(members, ' '), 'window', whole(longest), 'now', whole(now))
redis.call('PEXPIRE', KEYS[1], whole(math.ceil((math.max(now, stop) - now + 2 * longest) / 1000)))
return { slot - now, math.max(0, stop - now), count, number, #members, whole(now), log }
