/// Runs the unit tests of the module that it is compiled with, and of no other.
import core.runtime;
import core.stdc.stdio;

shared static this()
{
    Runtime.extendedModuleUnitTester = function UnitTestResult()
    {
        UnitTestResult result;
        foreach (each; ModuleInfo)
        {
            auto tests = each is null ? null : each.unitTest;
            if (!tests)
                continue;
            result.executed++;
            try
            {
                tests();
                result.passed++;
                printf("%.*s passes\n", cast(int) each.name.length, each.name.ptr);
            }
            catch (Throwable error)
                printf("%.*s fails: %.*s\n", cast(int) each.name.length, each.name.ptr, cast(int) error.msg.length, error.msg.ptr);
        }
        result.runMain = false;
        return result;
    };
}

void main()
{
}
