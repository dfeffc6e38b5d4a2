<?php
// Measures fibers by the protocol of docs/targets.md: the gated workloads, and feed. PHP 8.1 and newer.

const WARMUP_UNITS = 100;

$orders = [];
foreach (array_slice($argv, 1) as $argument) {
    [$key, $value] = explode('=', $argument, 2) + [1 => ''];
    $orders[$key] = $value;
}
$number = fn(string $key, int $missing): int => (int) ($orders[$key] ?? $missing);

/** Stops, if that was ordered, until the lab has looked at this process. */
function phase(string $name): void
{
    global $orders;
    if (($orders['phases'] ?? '0') === '1') {
        echo json_encode(['phase' => $name]), "\n";
        fgets(STDIN);
    }
}

/** One round: what it took to create and to run the units, and the switches they made. */
function round_of(int $units, int $switches, callable $alive): array
{
    $made = 0;
    $start = hrtime(true);
    $fibers = [];
    for ($i = 0; $i < $units; $i++) {
        $fibers[] = new Fiber(function () use ($switches): void {
            for ($left = $switches; $left > 0; $left--) {
                Fiber::suspend(1);
            }
        });
    }
    // What a call returns is 1 if the fiber waits, and nothing if it has ended.
    foreach ($fibers as $fiber) {
        $made += $fiber->start() ?? 0;
    }
    $create = hrtime(true) - $start;
    $alive();
    $start = hrtime(true);
    // Each waits as often as it has switches to make; the last turn takes it to its end.
    for ($turn = 0; $turn < $switches; $turn++) {
        foreach ($fibers as $fiber) {
            $made += $fiber->resume() ?? 0;
        }
    }
    unset($fibers, $fiber);
    return ['create_ns' => $create, 'run_ns' => hrtime(true) - $start, 'made' => $made];
}

function usage(): array
{
    $used = getrusage();
    return [
        'voluntary' => $used['ru_nvcsw'],
        'involuntary' => $used['ru_nivcsw'],
        'user_ns' => $used['ru_utime.tv_sec'] * 1_000_000_000 + $used['ru_utime.tv_usec'] * 1_000,
        'system_ns' => $used['ru_stime.tv_sec'] * 1_000_000_000 + $used['ru_stime.tv_usec'] * 1_000,
    ];
}

function gated(callable $number): array
{
    [$units, $switches, $rounds] = [$number('units', 1), $number('switches', 1), $number('rounds', 1)];
    $warmup = ['rounds' => $number('warmup', 0), 'ns' => 0];
    for ($i = 0; $i < $warmup['rounds']; $i++) {
        $round = round_of(min($units, WARMUP_UNITS), $switches, fn() => null);
        $warmup['ns'] += $round['create_ns'] + $round['run_ns'];
    }
    phase('base');
    $collected = gc_status()['runs'];
    $before = usage();
    $times = [];
    $made = 0;
    for ($i = 0; $i < $rounds; $i++) {
        $round = round_of($units, $switches, $i === 0 ? fn() => phase('alive') : fn() => null);
        $made += $round['made'];
        unset($round['made']);
        $times[] = $round;
        if ($i === 0) {
            phase('done');
        }
    }
    $after = usage();
    $sample = [
        'units' => $units,
        'switches_asked' => $units * $switches * $rounds,
        'switches_made' => $made,
        'rounds' => $times,
        'gc' => ['on' => gc_enabled(), 'collections' => gc_status()['runs'] - $collected],
    ];
    foreach ($after as $name => $value) {
        $sample[$name] = $value - $before[$name];
    }
    return $warmup['rounds'] > 0 ? $sample + ['warmup' => $warmup] : $sample;
}

final class Person
{
    private int $iron = 0;
    private int $calcium = 0;
    private int $fiber = 0;

    public function __construct(private int $need)
    {
    }

    public function satisfied(): bool
    {
        return $this->iron === $this->need && $this->calcium === $this->need && $this->fiber === $this->need;
    }

    public function bite(): void
    {
        $this->iron++;
        $this->calcium++;
        $this->fiber++;
    }

    public function eaten(): int
    {
        return $this->iron + $this->calcium + $this->fiber;
    }
}

function feed(callable $number): array
{
    [$count, $nutrients, $rounds] = [$number('units', 1), $number('nutrients', 1), $number('rounds', 1)];
    $yields = $number('yields', 0) === 1;
    [$made, $eaten, $times] = [0, 0, []];
    for ($i = 0; $i < $rounds; $i++) {
        $people = [];
        for ($p = 0; $p < $count; $p++) {
            $people[] = new Person($nutrients);
        }
        $start = hrtime(true);
        $hungry = [];
        foreach ($people as $person) {
            $fiber = new Fiber(function () use ($person, $yields): void {
                while (!$person->satisfied()) {
                    $person->bite();
                    if ($yields) {
                        Fiber::suspend(1);
                    }
                }
            });
            if ($fiber->start() === 1) {
                $made++;
                $hungry[] = $fiber;
            }
        }
        for ($left = count($hungry); $left > 0; $left = $still) {
            $still = 0;
            for ($at = 0; $at < $left; $at++) {
                if ($hungry[$at]->resume() === 1) {
                    $hungry[$still++] = $hungry[$at];
                }
            }
            $made += $still;
        }
        unset($hungry, $fiber);
        $times[] = ['create_ns' => 0, 'run_ns' => hrtime(true) - $start];
        foreach ($people as $person) {
            $eaten += $person->eaten();
        }
    }
    return [
        'units' => $count,
        'switches_asked' => $yields ? $count * $nutrients * $rounds : 0,
        'switches_made' => $made,
        'rounds' => $times,
        'gc' => ['on' => gc_enabled()],
        'eaten' => $eaten,
    ];
}

try {
    if (($orders['unit'] ?? '') !== 'fiber') {
        throw new Exception("there is no unit '" . ($orders['unit'] ?? '') . "'; the unit is fiber");
    }
    $sample = ($orders['workload'] ?? '') === 'feed' ? feed($number) : gated($number);
    echo json_encode(['sample' => $sample]), "\n";
} catch (Throwable $error) {
    echo json_encode(['failure' => ['message' => $error->getMessage(), 'advice' => null]]), "\n";
    exit(1);
}
