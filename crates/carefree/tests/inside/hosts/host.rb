# Ruby loads a library with fibers inside, by Fiddle.
require "fiddle"

library = Fiddle.dlopen(ARGV[0])
int = Fiddle::TYPE_INT
sleepers = Fiddle::Function.new(library["sleepers"], [int, int], Fiddle::TYPE_DOUBLE)
meetings = Fiddle::Function.new(library["meetings"], [int], int)
has_fibers = Fiddle::Function.new(library["has_fibers"], [], int)
raise "no fibers" unless has_fibers.call == 1
# One after the other, these take 50 seconds.
raise "one after the other" unless sleepers.call(1000, 50) < 5
raise "they did not meet" unless meetings.call(200) == 200

threads = 8.times.map { Thread.new { meetings.call(50) } }
raise "not from threads" unless threads.map(&:value) == [50] * 8

child = fork { exit!(meetings.call(20) == 20 ? 7 : 1) }
Process.wait(child)
raise "not in a child" unless $?.exitstatus == 7
puts "done"
