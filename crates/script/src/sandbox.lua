-- Makes the globals of scripts from Lua's own, and takes away what reaches beyond a run. Called once for an interpreter
-- with a table of functions of the host, which it returns with more in it.
--
-- The tables that scripts see are empty ones that read through to the real ones: nothing can be written to them, and
-- the real ones are never handed out. Frames of this chunk are nobody's: places of errors leave them out.
local host = ...

local raw = {
  coroutine_resume = coroutine.resume, error = error, getmetatable = getmetatable, loadstring = loadstring,
  next = next, pairs = pairs, pcall = pcall, rawget = rawget, rawset = rawset, select = select,
  setmetatable = setmetatable, type = type, xpcall = xpcall, concat = table.concat, byte = string.byte,
}

-- The real table behind each table that scripts see.
local real_of = {}

local function protect(real, metatable)
  local seen = {}
  real_of[seen] = real
  return raw.setmetatable(seen, { __index = real, __newindex = host.refuse_write, __metatable = metatable or false })
end

local function copy(names, from)
  local to = {}
  for name in names:gmatch('%S+') do to[name] = from[name] end
  return to
end

-- Errors: what the host raises is shown as what Redis raises, and nothing catches the end of a run.

local function after_pcall(ok, ...)
  if ok then return true, ... end
  return false, host.caught_text((...))
end

local function after_resume(ok, ...)
  if ok then return true, ... end
  return false, host.caught((...))
end

local globals = copy([[
  assert error ipairs next rawequal rawget select setmetatable getmetatable tonumber tostring type unpack _VERSION
]], _G)

function globals.pcall(...)
  if raw.select('#', ...) == 0 then return true end
  return after_pcall(raw.pcall(...))
end

function globals.xpcall(...)
  local f, handler = ...
  if raw.select('#', ...) < 2 then host.bad_argument(2, 'xpcall', 'value expected') end
  return after_resume(raw.xpcall(f, function(e) return handler(host.caught(e)) end))
end

local coroutines = copy('running status yield', coroutine)
local create, wrap = coroutine.create, coroutine.wrap
function coroutines.create(...)
  host.coroutine()
  return create(...)
end
function coroutines.wrap(...)
  host.coroutine()
  return wrap(...)
end
globals.coroutine = protect(coroutines)
real_of[globals.coroutine].resume = function(...) return after_resume(raw.coroutine_resume(...)) end

-- Tables.

function globals.pairs(...)
  local seen = ...
  local real = real_of[seen]
  if real == nil then
    if raw.type(seen) ~= 'table' then host.no_table(1, 'pairs', ...) end
    return raw.next, seen, nil
  end
  return function(_, key) return raw.next(real, key) end, seen, nil
end

function globals.rawset(...)
  if real_of[...] then host.refuse() end
  return raw.rawset(...)
end

function globals.rawget(...)
  local seen, key = ...
  if real_of[seen] then return raw.rawget(real_of[seen], key) end
  return raw.rawget(...)
end

-- Chunks: text only, since compiled ones are not checked.

function globals.loadstring(text, name)
  if raw.type(text) == 'string' and raw.byte(text) == 27 then
    return nil, 'attempt to load a compiled chunk'
  end
  return raw.loadstring(text, name)
end

function globals.load(reader, name)
  local parts = {}
  while true do
    local ok, part = raw.pcall(reader)
    if not ok then return nil, host.caught_text(part) end
    if part == nil or part == '' then break end
    if raw.type(part) ~= 'string' then return nil, 'reader function must return a string' end
    parts[#parts + 1] = part
  end
  return globals.loadstring(raw.concat(parts), name or '=(load)')
end

-- The collector is the host's: a script may look at it.

function globals.collectgarbage(option)
  if option == 'count' then return host.kilobytes() end
  return 0
end
globals.gcinfo = host.kilobytes

-- Libraries.

-- Functions that may take long in one call, in which nothing interrupts them: the host is asked first.

-- Steps of a pattern that are few enough, and bytes.
local STEPS_MAX, BYTES_MAX = 1e6, 1e6

-- Quantifiers of a pattern. A match takes up to 224 bytes of the thread's stack for each. Lua nests 200 calls of C
-- functions, of which gsub takes 9 KB each: a stack of 2 MB has little more.
local QUANTIFIERS_MAX = 500

-- Texts and patterns so short that they take few steps.
local SHORT_BYTES, SHORT_QUANTIFIERS, SHORT_PATTERN_BYTES = 16, 4, 1000

-- The number of quantifiers of patterns that were used lately.
local quantifiers, kept = {}, 0

local function quantifiers_of(pattern)
  local count = quantifiers[pattern]
  if count == nil then
    if kept >= 100 then quantifiers, kept = {}, 0 end
    count = host.quantifiers(pattern)
    quantifiers[pattern], kept = count, kept + 1
  end
  return count
end

local function is_text(value)
  local kind = raw.type(value)
  return kind == 'string' or kind == 'number'
end

local function ask_before_matching(bytes, pattern, is_plain)
  local count = is_plain and 0 or quantifiers_of(pattern)
  if count > QUANTIFIERS_MAX then raw.error('pattern too complex') end
  if bytes <= SHORT_BYTES and count <= SHORT_QUANTIFIERS and #pattern <= SHORT_PATTERN_BYTES then return end
  if (bytes + 1) ^ (count + 1) * (1 + #pattern / 100) > STEPS_MAX then host.before_long() end
end

local function guarded(name, f)
  return function(...)
    local text, pattern, _, is_plain = ...
    if not is_text(text) then host.wrong(1, name, 'string', ...) end
    if not is_text(pattern) then host.wrong(2, name, 'string', ...) end
    local bytes = #(text .. '')
    -- A pattern has no more quantifiers than bytes.
    if bytes > SHORT_BYTES or #(pattern .. '') > SHORT_QUANTIFIERS then
      ask_before_matching(bytes, pattern .. '', name == 'find' and is_plain)
    end
    return f(...)
  end
end

local strings = copy('byte char dump format len lower reverse sub upper', string)
for _, name in raw.pairs({ 'find', 'gfind', 'gmatch', 'match', 'gsub' }) do
  strings[name] = guarded(name, string[name])
end

function strings.rep(...)
  local text, count = ...
  if not is_text(text) then host.wrong(1, 'rep', 'string', ...) end
  if not tonumber(count) then host.wrong(2, 'rep', 'number', ...) end
  -- Lua would go through all the empty texts, one by one.
  if text == '' then return '' end
  if #(text .. '') * count > BYTES_MAX then host.before_long() end
  return string.rep(text, count)
end
globals.string = protect(strings)

-- Elements of a table that are gone through in about a millisecond.
local ELEMENTS_MAX = 1e4

local function ask_before_many(seen)
  if raw.type(seen) == 'table' and #seen > ELEMENTS_MAX then host.before_long() end
end

local tables = copy('foreach foreachi getn maxn remove setn', table)
local insert, sort, concat = table.insert, table.sort, table.concat
function tables.insert(...)
  local seen = ...
  if real_of[seen] then host.refuse() end
  if raw.select('#', ...) > 2 then ask_before_many(seen) end
  return insert(...)
end
function tables.sort(...)
  ask_before_many(...)
  return sort(...)
end
function tables.concat(...)
  ask_before_many(...)
  return concat(...)
end
globals.table = protect(tables)
globals.math = copy([[
  abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min mod modf pi pow rad sin
  sinh sqrt tan tanh
]], math)
globals.math.random, globals.math.randomseed = host.random, host.randomseed
globals.math = protect(globals.math)
globals.os = protect({ clock = os.clock })
for name, library in raw.pairs(host.libraries) do globals[name] = protect(library) end

-- A method of a string finds the functions where scripts do.
raw.getmetatable('').__index = globals.string
raw.getmetatable('').__metatable = protect({ __index = globals.string })

-- _G.

raw.setmetatable(globals, { __index = host.refuse_unknown })
local seen_globals = {}
real_of[seen_globals] = globals
raw.setmetatable(seen_globals, {
  __index = globals, __newindex = host.refuse_write, __metatable = protect({ __index = host.refuse_unknown }),
})
globals._G = seen_globals

-- What libraries see: those without KEYS and ARGV, and while they are loaded only what registers their functions.

local function_globals = {}
for name, value in raw.pairs(globals) do function_globals[name] = value end
local function_redis = {}
for name, value in raw.pairs(host.libraries.redis) do function_redis[name] = value end
-- What scripts had before there were functions, as in Redis.
function_redis.breakpoint, function_redis.debug, function_redis.replicate_commands = nil, nil, nil
function_globals.redis = protect(function_redis)
raw.setmetatable(function_globals, { __index = host.refuse_unknown })
local loading_redis = raw.setmetatable(host.loading, { __index = host.refuse_unknown })
local loading = raw.setmetatable({ redis = protect(loading_redis) }, { __index = host.refuse_unknown })
local seen_functions = {}
real_of[seen_functions] = function_globals
function_globals._G = seen_functions
local of_functions = {
  __index = function_globals, __newindex = host.refuse_write, __metatable = protect({ __index = host.refuse_unknown }),
}
raw.setmetatable(seen_functions, of_functions)

return {
  globals = globals,
  seen_globals = seen_globals,
  seen_functions = seen_functions,
  set_loading = function(is_loading) of_functions.__index = is_loading and loading or function_globals end,
}
