# Measures fibers, threads and tasks of the async gem by the protocol of docs/targets.md.
# Runs on Ruby 2.5 and newer.

require "json"

WARMUP_UNITS = 100

# No sample can be taken.
class Failed < StandardError
  attr_reader :advice

  def initialize(message, advice = nil)
    super(message)
    @advice = advice
  end
end

def clock
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

# One round: what it took to create and to run the units, and the switches they made.
def run_fibers(units, switches, all_alive)
  made = 0
  start = clock
  fibers = Array.new(units) do
    Fiber.new do
      # Here and below no blocks: to call one takes as long as half of a switch, and would count as
      # that.
      left = switches
      while left > 0
        Fiber.yield true
        left -= 1
      end
      # The published script resumes each fiber once for every yield, and so none ever ends.
      false
    end
  end
  fibers.each { |fiber| made += 1 if fiber.resume }
  create = clock - start
  all_alive.call
  start = clock
  # Each waits as often as it has switches to make; the last turn takes it to its end.
  turns = switches
  while turns > 0
    at = 0
    while at < units
      made += 1 if fibers[at].resume
      at += 1
    end
    turns -= 1
  end
  [create, clock - start, made]
rescue FiberError => error
  raise Failed.new("fibers ran out: #{error.message}", "raise vm.max_map_count, or use --units")
end

def run_threads(units, switches, all_alive)
  born = 0
  count = Mutex.new
  crowd = Queue.new
  gate = Queue.new
  made = Array.new(units, 0)
  turn = nil
  threads = []
  start = clock
  units.times do |number|
    begin
      threads << Thread.new do
        switched = gate.closed? ? 0 : 1
        # The last one wakes the program: to wake it for each would count as theirs.
        count.synchronize { crowd << true if (born += 1) == units }
        gate.pop
        (switches - 1).times do
          turn = number
          Thread.pass
          # Only one thread runs at a time: another number was written during another's turn.
          switched += 1 unless turn == number
        end
        made[number] = switched
      end
    rescue ThreadError => error
      gate.close
      raise Failed.new(
        "thread #{number + 1} of #{units} could not be started: #{error.message}",
        "raise the limits on processes (ulimit -u, pids.max), or use --units"
      )
    end
  end
  crowd.pop
  create = clock - start
  all_alive.call
  start = clock
  gate.close
  threads.each(&:join)
  [create, clock - start, made.sum]
end

def run_tasks(units, switches, all_alive)
  require "async"
  require "async/condition"
  result = nil
  Async do |parent|
    gate = Async::Condition.new
    born = 0
    made = 0
    turn = nil
    start = clock
    tasks = Array.new(units) do |number|
      parent.async do |task|
        born += 1
        gate.wait
        switched = 1
        (switches - 1).times do
          turn = number
          task.yield
          switched += 1 unless turn == number
        end
        made += switched
      end
    end
    # A task runs until its first wait before the next is made.
    raise Failed, "#{born} of #{units} tasks began" unless born == units
    create = clock - start
    all_alive.call
    start = clock
    gate.signal
    tasks.each(&:wait)
    result = [create, clock - start, made]
  end
  result
end

RUN = { "fiber" => :run_fibers, "thread" => :run_threads, "task" => :run_tasks }.freeze

# The kernel's counts for this process, where the fiddle library is there to ask: voluntary and
# involuntary switches, then processor time in the program and in the kernel.
class Usage
  FIELDS = { "voluntary" => 16, "involuntary" => 17 }.freeze

  def initialize
    require "fiddle"
    types = [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP]
    @call = Fiddle::Function.new(Fiddle::Handle::DEFAULT["getrusage"], types, Fiddle::TYPE_INT)
  rescue LoadError, Fiddle::DLError
    @call = nil
  end

  def now
    return {} unless @call
    # struct rusage: two timevals of two longs each, then fourteen longs.
    place = "\0" * (18 * 8)
    @call.call(0, place)
    longs = place.unpack("q18")
    usage = FIELDS.map { |name, at| [name, longs[at]] }.to_h
    usage["user_ns"] = longs[0] * 1_000_000_000 + longs[1] * 1_000
    usage["system_ns"] = longs[2] * 1_000_000_000 + longs[3] * 1_000
    usage
  end
end

def take(orders)
  run = method(RUN.fetch(orders["unit"]) { |name| raise Failed, "there is no unit '#{name}'" })
  number = ->(key, missing) { Integer(orders.fetch(key, missing)) }
  units, switches, rounds = number["units", 1], number["switches", 1], number["rounds", 1]
  phases = number["phases", 0] > 0
  stop = lambda do |name|
    next unless phases
    puts JSON.generate("phase" => name)
    $stdout.flush
    $stdin.gets
  end
  nothing = -> {}

  warmup = { "rounds" => number["warmup", 0], "ns" => 0 }
  warmup["rounds"].times do
    create, ran, = run.call([units, WARMUP_UNITS].min, switches, nothing)
    warmup["ns"] += create + ran
  end

  usage = Usage.new
  stop.call("base")
  collections = GC.count
  before = usage.now
  times = []
  made = 0
  rounds.times do |round|
    alive = round.zero? ? -> { stop.call("alive") } : nothing
    create, ran, switched = run.call(units, switches, alive)
    times << { "create_ns" => create, "run_ns" => ran }
    made += switched
    stop.call("done") if round.zero?
  end
  after = usage.now
  sample = {
    "units" => units,
    "switches_asked" => units * switches * rounds,
    "switches_made" => made,
    "rounds" => times,
    "gc" => { "on" => true, "collections" => GC.count - collections }
  }
  after.each { |name, value| sample[name] = value - before[name] }
  sample["warmup"] = warmup if warmup["rounds"] > 0
  { "sample" => sample }
end

begin
  answer = take(ARGV.map { |argument| argument.split("=", 2) }.to_h)
rescue Failed => error
  answer = { "failure" => { "message" => error.message, "advice" => error.advice } }
end
puts JSON.generate(answer)
$stdout.flush
exit(answer.key?("sample"))
