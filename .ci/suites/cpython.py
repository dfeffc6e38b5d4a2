"""Runs the tests of a module of CPython's, for .ci/run-suites: cpython.py MODULE ORDER.

What becomes of each test is written at once, for the process may not live to write a report.
"""
import json
import os
import sys
import unittest


def main():
    from test import support

    order, module = sys.argv.pop(), sys.argv.pop()
    with open(order) as file:
        report, skip, only = json.load(file)
    support.verbose, support.use_resources = 1, ["cpu", "subprocess", "largefile", "network"]
    report = open(report, "a", buffering=1)
    owner = os.getpid()

    def say(test, what):
        # (A child of a fork may come here, too.)
        if os.getpid() == owner:
            report.write(f"{test}\t{what}\n")

    class Result(unittest.TextTestResult):
        def startTest(self, test):
            say(test.id(), "runs")
            super().startTest(test)

        def addSuccess(self, test):
            say(test.id(), "ok")
            super().addSuccess(test)

        def addError(self, test, error):
            say(test.id(), "error")
            super().addError(test, error)

        def addFailure(self, test, error):
            say(test.id(), "failure")
            super().addFailure(test, error)

        def addSubTest(self, test, subtest, error):
            if error:
                say(test.id(), "failure")
            super().addSubTest(test, subtest, error)

        def addSkip(self, test, reason):
            say(test.id(), "skipped")
            super().addSkip(test, reason)

        def addExpectedFailure(self, test, error):
            say(test.id(), "ok")
            super().addExpectedFailure(test, error)

        def addUnexpectedSuccess(self, test):
            say(test.id(), "unexpected success")
            super().addUnexpectedSuccess(test)

    def kept(suite):
        left = unittest.TestSuite() if type(suite) is unittest.TestSuite else type(suite)()
        for each in suite:
            if isinstance(each, unittest.TestSuite):
                left.addTest(kept(each))
            elif each.id() not in skip and (only is None or each.id() in only):
                left.addTest(each)
        return left

    loaded = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result).run(kept(loaded))
    report.write("\tdone\n")


# (Processes that the tests spawn import this file.)
if __name__ == "__main__":
    main()
