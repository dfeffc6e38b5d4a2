// C++20: Asio's servers and clients in coroutines on a pool of threads, the library's latches, barriers, semaphores
// and stop tokens, and SQLite from several threads.
// (Boost 1.74 forgets it.)
#include <utility>

#include <barrier>
#include <boost/asio.hpp>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <latch>
#include <mutex>
#include <semaphore>
#include <sqlite3.h>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;

static asio::awaitable<void> serve(tcp::socket socket) {
    char data[1024];
    try {
        for (;;) {
            auto count = co_await socket.async_read_some(asio::buffer(data), asio::use_awaitable);
            co_await asio::async_write(socket, asio::buffer(data, count), asio::use_awaitable);
        }
    } catch (const boost::system::system_error &) {
        // The client has gone.
    }
}

static asio::awaitable<void> listen(tcp::acceptor &acceptor, int clients) {
    for (int n = 0; n < clients; n++) {
        auto socket = co_await acceptor.async_accept(asio::use_awaitable);
        asio::co_spawn(acceptor.get_executor(), serve(std::move(socket)), asio::detached);
    }
}

static asio::awaitable<void> ask(tcp::endpoint where, int seed, std::atomic<long> &echoed) {
    tcp::socket socket(co_await asio::this_coro::executor);
    co_await socket.async_connect(where, asio::use_awaitable);
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int n = 0; n < 50; n++) {
        auto text = std::to_string(seed * 1000 + n);
        co_await asio::async_write(socket, asio::buffer(text), asio::use_awaitable);
        std::string got(text.size(), ' ');
        co_await asio::async_read(socket, asio::buffer(got), asio::use_awaitable);
        if (got == text) echoed += std::stol(got);
        if (n % 10 == 0) {
            timer.expires_after(std::chrono::milliseconds(1));
            co_await timer.async_wait(asio::use_awaitable);
        }
    }
}

static void echoes() {
    asio::io_context context;
    tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
    std::atomic<long> echoed = 0;
    asio::co_spawn(context, listen(acceptor, 20), asio::detached);
    for (int n = 0; n < 20; n++) asio::co_spawn(context, ask(acceptor.local_endpoint(), n, echoed), asio::detached);
    std::vector<std::jthread> threads;
    for (int n = 0; n < 4; n++) threads.emplace_back([&] { context.run(); });
    threads.clear();
    std::printf("echoed %ld\n", echoed.load());
    // And clients that block, each in a thread, of a server that blocks.
    asio::io_context plain;
    tcp::acceptor blocking(plain, {asio::ip::address_v4::loopback(), 0});
    std::atomic<long> got = 0;
    std::vector<std::jthread> clients;
    for (int n = 0; n < 10; n++)
        clients.emplace_back([&, n] {
            tcp::socket socket(plain);
            socket.connect(blocking.local_endpoint());
            for (char round = 0; round < 20; round++) {
                char byte = char(n + round), back = 0;
                asio::write(socket, asio::buffer(&byte, 1));
                asio::read(socket, asio::buffer(&back, 1));
                got += back;
            }
        });
    std::vector<std::jthread> servers;
    for (int n = 0; n < 10; n++)
        servers.emplace_back([socket = blocking.accept()]() mutable {
            char byte;
            boost::system::error_code error;
            while (asio::read(socket, asio::buffer(&byte, 1), error)) asio::write(socket, asio::buffer(&byte, 1));
        });
    clients.clear();
    servers.clear();
    std::printf("blocking %ld\n", got.load());
}

static void library() {
    std::latch begun(5);
    std::counting_semaphore<3> slots(3);
    std::atomic<int> most = 0, now = 0, phases = 0;
    std::barrier together(5, [&]() noexcept { phases++; });
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < 5; n++)
            threads.emplace_back([&] {
                begun.arrive_and_wait();
                for (int round = 0; round < 100; round++) {
                    slots.acquire();
                    int in = ++now, before = most;
                    while (in > before && !most.compare_exchange_weak(before, in)) {}
                    std::this_thread::yield();
                    now--;
                    slots.release();
                    together.arrive_and_wait();
                }
            });
    }
    std::printf("phases %d, at most three %d\n", phases.load(), most <= 3);
    std::mutex mutex;
    std::condition_variable_any changed;
    bool stopped = false;
    {
        std::jthread waits([&](std::stop_token token) {
            std::unique_lock lock(mutex);
            changed.wait(lock, token, [] { return false; });
            stopped = token.stop_requested();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::atomic<int> word = 0;
    std::jthread wakes([&] { word = 1; word.notify_all(); });
    word.wait(0);
    std::printf("stopped %d, word %d\n", stopped, word.load());
}

static void databases() {
    std::filesystem::remove("base");
    sqlite3 *base;
    sqlite3_open("base", &base);
    sqlite3_busy_timeout(base, 30000);
    sqlite3_exec(base, "pragma journal_mode = wal; create table t (thread, n)", nullptr, nullptr, nullptr);
    std::atomic<int> failed = 0;
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < 6; n++)
            threads.emplace_back([&, n] {
                sqlite3 *own;
                sqlite3_open("base", &own);
                sqlite3_busy_timeout(own, 30000);
                for (int row = 0; row < 50; row++) {
                    auto text = "insert into t values (" + std::to_string(n) + ", " + std::to_string(row) + ")";
                    // One of the connections is everybody's, too.
                    if (sqlite3_exec(row % 5 ? own : base, text.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) failed++;
                }
                sqlite3_close(own);
            });
    }
    sqlite3_exec(base, "select count(*), sum(n), count(distinct thread) from t", [](void *, int, char **row, char **) -> int {
        return std::printf("rows %s, sum %s, threads %s\n", row[0], row[1], row[2]) < 0;
    }, nullptr, nullptr);
    sqlite3_close(base);
    std::printf("failed %d\n", failed.load());
}

int main() {
    echoes();
    library();
    databases();
}
