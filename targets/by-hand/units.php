<?php
// Switch and allocation of PHP, by hand: nanoseconds on standard output.
[, $what, , $count] = $argv;
$start = hrtime(true);
if ($what === 'switch') {
    $fiber = new Fiber(function () {
        while (true) {
            Fiber::suspend();
        }
    });
    $fiber->start();
    $start = hrtime(true);
    for ($i = 0; $i < $count; $i++) {
        $fiber->resume();
    }
} else {
    $all = array_map(fn($i) => new Fiber(function () {
        Fiber::suspend();
        Fiber::suspend();
    }), range(1, $count));
    foreach ($all as $fiber) {
        $fiber->start();
    }
    foreach ([1, 2] as $_) {
        foreach ($all as $fiber) {
            $fiber->resume();
        }
    }
    unset($all, $fiber);
}
echo (hrtime(true) - $start) / $count, "\n";
