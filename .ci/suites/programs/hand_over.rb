# Two threads that hand over to each other by two queues. Prints the nanoseconds of a hand-over.
TURNS = (ARGV[0] || 1000).to_i
there, back = Queue.new, Queue.new

clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
begun = clock.call
other = Thread.new { TURNS.times { back << there.pop + 1 } }
value = 0
TURNS.times do
  there << value
  value = back.pop
end
other.join
ended = clock.call
raise "a turn was lost" unless value == TURNS
puts ((ended - begun).fdiv(2 * TURNS)).round(1)
