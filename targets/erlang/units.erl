%% Measures processes by the protocol of docs/targets.md. Runs on OTP 22 and newer.
-module(units).
-export([main/0]).

-define(WARMUP_UNITS, 100).

main() ->
    orders:answer(fun take/1).

clock() -> erlang:monotonic_time(nanosecond).

take(Orders) ->
    case orders:word(Orders, "unit", "") of
        "process" -> ok;
        Other -> error("there is no unit '" ++ Other ++ "'; the unit is process")
    end,
    Units = orders:number(Orders, "units", 1),
    Switches = orders:number(Orders, "switches", 1),
    Rounds = orders:number(Orders, "rounds", 1),
    Warmup = orders:number(Orders, "warmup", 0),
    Stop = fun(Phase) -> orders:phase(Orders, Phase) end,
    Warming = lists:sum([begin
        {Create, Run, _} = run(min(Units, ?WARMUP_UNITS), Switches, fun() -> ok end),
        Create + Run
    end || _ <- lists:seq(1, Warmup)]),
    Stop("base"),
    {Collections, _, _} = erlang:statistics(garbage_collection),
    {Turns, _} = erlang:statistics(context_switches),
    Results = [begin
        Result = run(Units, Switches, fun() -> first(Round, Stop, "alive") end),
        first(Round, Stop, "done"),
        Result
    end || Round <- lists:seq(1, Rounds)],
    {TurnsAfter, _} = erlang:statistics(context_switches),
    {CollectionsAfter, _, _} = erlang:statistics(garbage_collection),
    %% On several cores processes see each other's turns without having switched; the virtual
    %% machine counts its switches.
    Made = min(lists:sum([M || {_, _, M} <- Results]), TurnsAfter - Turns),
    io_lib:format(
        "\"units\":~b,\"switches_asked\":~b,\"switches_made\":~b,\"rounds\":[~s],"
        "\"gc\":{\"on\":true,\"collections\":~b}~s",
        [Units, Units * Switches * Rounds, Made,
         orders:rounds([{Create, Run} || {Create, Run, _} <- Results]),
         CollectionsAfter - Collections, warmup(Warmup, Warming)]).

first(1, Stop, Phase) -> Stop(Phase);
first(_, _, _) -> ok.

warmup(0, _) -> "";
warmup(Rounds, Ns) -> io_lib:format(",\"warmup\":{\"rounds\":~b,\"ns\":~b}", [Rounds, Ns]).

%% One round: what it took to create and to run the units, and the switches they made.
run(Units, Switches, AllAlive) ->
    Turn = atomics:new(1, []),
    Main = self(),
    Start = clock(),
    All = [spawn_monitor(fun() -> unit(Main, Turn, Number, Switches) end)
           || Number <- lists:seq(1, Units)],
    %% In whichever order they come: to wait for those of one process after the other is to look
    %% through all that have come from the others, again and again.
    [receive {born, _} -> ok end || _ <- All],
    Create = clock() - Start,
    AllAlive(),
    Again = clock(),
    [Process ! go || {Process, _} <- All],
    Made = lists:sum([ended() || _ <- All]),
    {Create, clock() - Again, Made}.

%% The switches of a unit that has ended.
ended() ->
    receive
        {'DOWN', _, process, _, {made, Switched}} -> Switched;
        {'DOWN', _, process, _, Reason} -> error(Reason)
    end.

unit(Main, Turn, Number, Switches) ->
    Main ! {born, self()},
    receive go -> ok end,
    exit({made, yield(Turn, Number, Switches - 1, 1)}).

yield(_, _, 0, Switched) -> Switched;
yield(Turn, Number, Left, Switched) ->
    atomics:put(Turn, 1, Number),
    erlang:yield(),
    case atomics:get(Turn, 1) of
        Number -> yield(Turn, Number, Left - 1, Switched);
        _ -> yield(Turn, Number, Left - 1, Switched + 1)
    end.
