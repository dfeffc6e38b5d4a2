%% Switch and allocation of Erlang, by hand: nanoseconds on standard output.
-module(units).
-export([main/1]).

main([What, _, Number]) ->
    Count = list_to_integer(Number),
    Start = erlang:monotonic_time(nanosecond),
    case What of
        "switch" -> crowd(2, Count div 2);
        "alloc" -> crowd(Count, 1)
    end,
    io:format("~f~n", [(erlang:monotonic_time(nanosecond) - Start) / Count]),
    halt().

crowd(Units, Yields) ->
    Self = self(),
    All = [spawn(fun() -> receive go -> yield(Yields) end, Self ! done end)
           || _ <- lists:seq(1, Units)],
    lists:foreach(fun(Process) -> Process ! go end, All),
    lists:foreach(fun(_) -> receive done -> ok end end, All).

yield(0) -> ok;
yield(Left) -> erlang:yield(), yield(Left - 1).
