%% What the programs of this target share: orders in, phases, and one line out, as docs/targets.md
%% has it. Runs on OTP 22 and newer.
-module(orders).
-export([answer/1, word/3, number/3, phase/2, rounds/1]).

%% Has `Take` make a sample of the orders, prints it and ends; whatever it fails of is told.
answer(Take) ->
    Orders = maps:from_list([order(Argument) || Argument <- init:get_plain_arguments()]),
    try
        io:format("{\"sample\":{~s}}~n", [Take(Orders)])
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

word(Orders, Key, Missing) -> maps:get(Key, Orders, Missing).

number(Orders, Key, Missing) ->
    case Orders of
        #{Key := Text} -> list_to_integer(Text);
        _ -> Missing
    end.

%% Stops, if that was ordered, until the lab has looked at this process.
phase(Orders, Name) ->
    case word(Orders, "phases", "0") of
        "1" ->
            io:format("{\"phase\":\"~s\"}~n", [Name]),
            io:get_line("");
        _ -> ok
    end.

%% The rounds of a sample, from what it took to create and to run the units of each.
rounds(Times) ->
    lists:join(",", [io_lib:format("{\"create_ns\":~b,\"run_ns\":~b}", [Create, Run])
                     || {Create, Run} <- Times]).

%% What can stand between the quotes of JSON.
plain(Reason) ->
    Text =
        case io_lib:printable_list(Reason) of
            true -> Reason;
            false -> lists:flatten(io_lib:format("~0p", [Reason]))
        end,
    [Character || Character <- Text, Character =/= $", Character =/= $\\, Character >= $\s].
