%% The feed workload of docs/targets.md: people who need so many bites each, fed by a process of
%% Erlang each, on one scheduler or on a few.
-module(feed).
-export([main/0]).

main() ->
    orders:answer(fun take/1).

take(Orders) ->
    Count = orders:number(Orders, "units", 1),
    Nutrients = orders:number(Orders, "nutrients", 1),
    Yields = orders:word(Orders, "yields", "0") =:= "1",
    Schedulers =
        case orders:word(Orders, "how", "units") of
            "units" -> 1;
            "hybrid" -> max(1, orders:number(Orders, "workers", 2))
        end,
    erlang:system_flag(schedulers_online, min(Schedulers, erlang:system_info(schedulers))),
    Rounds = orders:number(Orders, "rounds", 1),
    Results = [feed(Count, Nutrients, Yields) || _ <- lists:seq(1, Rounds)],
    Asked =
        case Yields of
            true -> Count * Nutrients * Rounds;
            false -> 0
        end,
    io_lib:format(
        "\"units\":~b,\"switches_asked\":~b,\"switches_made\":~b,\"rounds\":[~s],"
        "\"gc\":{\"on\":true},\"eaten\":~b",
        [Count, Asked, lists:sum([Made || {_, Made, _} <- Results]),
         orders:rounds([{0, Time} || {Time, _, _} <- Results]),
         lists:sum([Eaten || {_, _, Eaten} <- Results])]).

feed(Count, Nutrients, Yields) ->
    Feeder = self(),
    %% The person that ate last: a yield after which it is still the same one made no switch.
    Last = atomics:new(1, []),
    Start = erlang:monotonic_time(nanosecond),
    Eaters = [spawn_link(fun() -> Feeder ! {fed, eat(Person, Nutrients, Yields, Last)} end)
              || Person <- lists:seq(1, Count)],
    Fed = [receive {fed, Result} -> Result end || _ <- Eaters],
    Time = erlang:monotonic_time(nanosecond) - Start,
    {Time, lists:sum([Made || {Made, _} <- Fed]), lists:sum([Eaten || {_, Eaten} <- Fed])}.

eat(Person, Need, Yields, Last) ->
    eat(Person, Need, Yields, Last, {0, 0, 0}, 0).

eat(_, Need, _, _, {Need, Need, Need}, Made) ->
    {Made, 3 * Need};
eat(Person, Need, false, Last, {Iron, Calcium, Fiber}, Made) ->
    eat(Person, Need, false, Last, {Iron + 1, Calcium + 1, Fiber + 1}, Made);
eat(Person, Need, true, Last, {Iron, Calcium, Fiber}, Made) ->
    atomics:put(Last, 1, Person),
    erlang:yield(),
    Switched =
        case atomics:get(Last, 1) of
            Person -> 0;
            _ -> 1
        end,
    eat(Person, Need, true, Last, {Iron + 1, Calcium + 1, Fiber + 1}, Made + Switched).
