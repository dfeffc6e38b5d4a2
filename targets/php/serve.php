<?php
// The `serve` workload of docs/targets.md: ReactPHP's HTTP server, on one event loop, with a fiber for each
// request. A fiber that asks a backend waits, and the loop goes on. ReactPHP's own client of these versions
// closes each connection, so a backend is asked by the least of HTTP over its sockets, which are kept; one
// that is free serves whichever request comes next.

use Psr\Http\Message\ServerRequestInterface;
use React\EventLoop\Loop;
use React\Http\HttpServer;
use React\Http\Message\Response;
use React\Promise\Deferred;
use React\Promise\PromiseInterface;
use React\Socket\ConnectionInterface;
use React\Socket\Connector;
use React\Socket\SocketServer;
use React\Stream\ReadableResourceStream;

/** Runs `work` on a fiber of its own, and promises what it returns. */
function spawn(callable $work): PromiseInterface
{
    $promise = new Deferred();
    $fiber = new Fiber(function () use ($work, $promise): void {
        try {
            $promise->resolve($work());
        } catch (Throwable $error) {
            $promise->reject($error);
        }
    });
    $fiber->start();
    return $promise->promise();
}

/** Has the fiber wait for what is promised. */
function await(PromiseInterface $promise): mixed
{
    $fiber = Fiber::getCurrent();
    // Of a promise that is kept already, it is called before the fiber waits.
    [$done, $value, $failure, $waits] = [false, null, null, false];
    $go_on = function () use (&$waits, &$done, $fiber): void {
        $done = true;
        if ($waits) {
            $fiber->resume();
        }
    };
    $promise->then(
        function ($kept) use (&$value, $go_on): void {
            $value = $kept;
            $go_on();
        },
        function ($why) use (&$failure, $go_on): void {
            $failure = $why;
            $go_on();
        },
    );
    if (!$done) {
        $waits = true;
        Fiber::suspend();
    }
    return $failure === null ? $value : throw $failure;
}

/** A connection to the backend: one request at a time. */
final class Upstream
{
    private string $received = '';
    private ?Deferred $answer = null;

    public function __construct(private ConnectionInterface $connection, private string $host)
    {
        $connection->on('data', function (string $part): void {
            $this->received .= $part;
            $this->look();
        });
        $connection->on('close', fn() => $this->answer?->reject(new RuntimeException('the backend closed a connection')));
    }

    /** Promises what it answers to a GET of `target`. */
    public function get(string $target): PromiseInterface
    {
        $this->answer = new Deferred();
        $this->connection->write("GET $target HTTP/1.1\r\nHost: $this->host\r\n\r\n");
        return $this->answer->promise();
    }

    private function look(): void
    {
        $end = strpos($this->received, "\r\n\r\n");
        if ($end === false || $this->answer === null) {
            return;
        }
        $head = substr($this->received, 0, $end);
        $body = substr($this->received, $end + 4);
        if (!preg_match('/^HTTP\/1\.1 200 /', $head) || !preg_match('/^content-length: *(\d+)/mi', $head, $length)) {
            $this->settle()->reject(new RuntimeException('the backend answered ' . strtok($head, "\r")));
        } elseif (strlen($body) >= (int) $length[1]) {
            $this->settle()->resolve($body);
        }
    }

    private function settle(): Deferred
    {
        [$answer, $this->answer, $this->received] = [$this->answer, null, ''];
        return $answer;
    }
}

final class Backend
{
    private array $free = [];

    public function __construct(private string $host)
    {
    }

    /** What it answers to a GET of `target`; the fiber waits for it. */
    public function ask(string $target): string
    {
        $upstream = array_pop($this->free) ?? new Upstream(await((new Connector())->connect($this->host)), $this->host);
        $body = await($upstream->get($target));
        $this->free[] = $upstream;
        return $body;
    }
}

function serve(array $orders): void
{
    $kind = $orders['kind'] ?? '';
    if ($kind !== 'plain' && $kind !== 'backend') {
        throw new Exception("there is no kind '$kind' of servers here");
    }
    if (($orders['unit'] ?? '') !== 'fiber') {
        throw new Exception("there is no unit '" . ($orders['unit'] ?? '') . "'; the unit is fiber");
    }
    $backend = $kind === 'backend' ? new Backend(substr($orders['backend'], strlen('http://'))) : null;
    $server = new HttpServer(fn(ServerRequestInterface $request) => spawn(function () use ($request, $backend): Response {
        $target = $request->getRequestTarget();
        $body = $backend ? $backend->ask($target) : "carefree $target\n";
        return new Response(200, ['Content-Type' => 'text/plain'], $body);
    }));
    $server->on('error', fn(Throwable $error) => fwrite(STDERR, "{$error->getMessage()}\n"));
    $socket = new SocketServer('127.0.0.1:0', ['tcp' => ['backlog' => 1024]]);
    $server->listen($socket);
    echo json_encode(['phase' => 'serving', 'port' => parse_url($socket->getAddress(), PHP_URL_PORT)]), "\n";
    $end = function (): void {
        echo '{"sample":{"units":1,"switches_asked":0,"switches_made":0,"rounds":[]}}', "\n";
        exit(0);
    };
    $input = new ReadableResourceStream(STDIN);
    $input->on('data', $end);
    $input->on('end', $end);
    Loop::run();
}

/** Has the libraries loaded: those that the user has by composer, else those of a Debian package. */
function load_libraries(): void
{
    $home = getenv('HOME');
    $composer = [getenv('COMPOSER_HOME'), "$home/.config/composer", "$home/.composer"];
    $places = array_map(fn($folder) => "$folder/vendor/autoload.php", array_filter($composer));
    foreach ([...$places, '/usr/share/icinga-php/vendor/vendor/autoload.php'] as $place) {
        if (is_readable($place)) {
            require_once $place;
            if (class_exists(HttpServer::class)) {
                return;
            }
        }
    }
    throw new Exception('react/http 1.5 or newer is not here');
}

$orders = [];
foreach (array_slice($argv, 1) as $argument) {
    [$key, $value] = explode('=', $argument, 2) + [1 => ''];
    $orders[$key] = $value;
}
try {
    load_libraries();
    if (isset($orders['version'])) {
        // The doctor's question.
        exit(ltrim(Composer\InstalledVersions::getPrettyVersion('react/http'), 'v') . "\n");
    }
    serve($orders);
} catch (Throwable $error) {
    echo json_encode(['failure' => ['message' => $error->getMessage(), 'advice' => null]]), "\n";
    exit(1);
}
