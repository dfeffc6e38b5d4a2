%% The feed workload of docs/targets.md: people who need so many bites each, fed by a process of
%% Erlang each, on one scheduler or on a few.
-module(feed).
-export([main/0]).

main() ->
    Orders = maps:from_list([order(Argument) || Argument <- init:get_plain_arguments()]),
    try
        io:format("~s~n", [take(Orders)])
    catch
        _:Reason ->
            io:format("{\"failure\":{\"message\":\"~s\"}}~n", [plain(Reason)]),
            halt(1)
    end,
    halt(0).

order(Argument) ->
    case string:split(Argument, "=") of
        [Key, Value] -> {Key, Value};
        [Key] -> {Key, ""}
    end.

number(Key, Orders, Missing) ->
    list_to_integer(maps:get(Key, Orders, Missing)).

take(Orders) ->
    Count = number("units", Orders, "1"),
    Nutrients = number("nutrients", Orders, "1"),
    Yields = maps:get("yields", Orders, "0") =:= "1",
    Schedulers =
        case maps:get("how", Orders, "units") of
            "units" -> 1;
            "hybrid" -> max(1, number("workers", Orders, "2"))
        end,
    erlang:system_flag(schedulers_online, min(Schedulers, erlang:system_info(schedulers))),
    Rounds = number("rounds", Orders, "1"),
    Results = [feed(Count, Nutrients, Yields) || _ <- lists:seq(1, Rounds)],
    Asked =
        case Yields of
            true -> Count * Nutrients * Rounds;
            false -> 0
        end,
    Times = [io_lib:format("{\"create_ns\":0,\"run_ns\":~b}", [Time]) || {Time, _, _} <- Results],
    io_lib:format(
        "{\"sample\":{\"units\":~b,\"switches_asked\":~b,\"switches_made\":~b,\"rounds\":[~s],"
        "\"gc\":{\"on\":true},\"eaten\":~b}}",
        [Count, Asked, lists:sum([Made || {_, Made, _} <- Results]), lists:join(",", Times),
         lists:sum([Eaten || {_, _, Eaten} <- Results])]).

feed(Count, Nutrients, Yields) ->
    Feeder = self(),
    %% Who ate last: a yield after which it is still the same one switched to nobody.
    Last = atomics:new(1, []),
    Start = erlang:monotonic_time(nanosecond),
    Eaters = [spawn_link(fun() -> Feeder ! {self(), eat(Person, Nutrients, Yields, Last)} end)
              || Person <- lists:seq(1, Count)],
    Fed = [receive {Eater, Result} -> Result end || Eater <- Eaters],
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

plain(Reason) ->
    [Character || Character <- lists:flatten(io_lib:format("~0p", [Reason])),
                  Character =/= $", Character =/= $\\, Character >= $\s].
