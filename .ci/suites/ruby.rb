# Says of each test in Ruby's own suite how it goes, for .ci/run-suites: ruby -r this test/runner.rb FILE,
# with the order in CAREFREE_SUITES_ORDER. It is written at once, for the process may not live to report.
require "json"
$LOAD_PATH.unshift File.expand_path("tool/lib")
require "test/unit"

module Said
  REPORT, SKIP, ONLY = JSON.parse(File.read(ENV.delete("CAREFREE_SUITES_ORDER")))
  FILE = File.open(REPORT, "a")
  FILE.sync = true
  FILE.close_on_exec = true
  OWNER = $$
  HOW = {"." => "ok", "S" => "skipped", "F" => "failure", "E" => "error"}

  def self.say(test, what)
    FILE.syswrite("#{test}\t#{what}\n") if $$ == OWNER
  end

  module Methods
    def test_methods
      super.reject do |name|
        id = "#{self}##{name}"
        SKIP.include?(id) || (ONLY && !ONLY.include?(id))
      end
    end
  end

  module Run
    def run(runner)
      id = "#{self.class}##{__name__}"
      Said.say(id, "runs")
      result = super
      # (A test that has printed something leaves this empty.)
      Said.say(id, HOW.fetch(result, @passed ? "ok" : "error"))
      result
    end
  end
end

Test::Unit::TestCase.singleton_class.prepend(Said::Methods)
Test::Unit::TestCase.prepend(Said::Run)
at_exit { Said.say("", "done") }
