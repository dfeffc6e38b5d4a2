// The `serve` workload of docs/targets.md: HTTP by Boost.Beast, as its examples have it. What waits
// is, with -DTHREADS, a std::thread for each connection; with -DCOROUTINES a coroutine with a stack
// (asio::spawn); with -DTASKS a coroutine of C++20 (asio::co_spawn). A backend is asked by Beast as
// well; its connections are kept, and one that is free serves whichever request comes next.

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio.hpp>
#include <boost/beast.hpp>

#if defined(COROUTINES)
#include <boost/asio/spawn.hpp>
#elif defined(TASKS)
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#endif

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

// WAIT(http::, read, ..) is http::read(..) on a thread, and http::async_read(.., waiter) elsewhere.
#if defined(THREADS)
struct Waiter {};
template <typename T> using Waits = T;
#define WAIT(scope, call, ...) scope call(__VA_ARGS__)
#define RETURN return
#elif defined(COROUTINES)
using Waiter = asio::yield_context;
template <typename T> using Waits = T;
#define WAIT(scope, call, ...) scope async_##call(__VA_ARGS__, waiter)
#define RETURN return
#elif defined(TASKS)
using Waiter = asio::use_awaitable_t<>;
template <typename T> using Waits = asio::awaitable<T>;
#define WAIT(scope, call, ...) co_await scope async_##call(__VA_ARGS__, waiter)
#define RETURN co_return
#endif

using Request = http::request<http::empty_body>;
using Answer = http::response<http::string_body>;
using Orders = std::map<std::string, std::string>;

struct Connection {
    tcp::socket socket;
    beast::flat_buffer buffer;
    explicit Connection(tcp::socket socket) : socket(std::move(socket)) {
        if (this->socket.is_open()) hand_over_at_once();
    }
    void hand_over_at_once() { socket.set_option(tcp::no_delay(true)); }
};

// Those to the backend that no request has.
class Backend {
    std::mutex mutex;
    std::vector<std::unique_ptr<Connection>> free;

  public:
    std::string host;
    tcp::endpoint address;

    explicit Backend(const std::string &url) : host(url.substr(url.find("//") + 2)) {
        const auto colon = host.rfind(':');
        const auto port = static_cast<unsigned short>(std::stoul(host.substr(colon + 1)));
        address = tcp::endpoint(asio::ip::make_address(host.substr(0, colon)), port);
    }
    std::unique_ptr<Connection> take() {
        std::lock_guard<std::mutex> lock(mutex);
        if (free.empty()) return nullptr;
        auto one = std::move(free.back());
        free.pop_back();
        return one;
    }
    void give(std::unique_ptr<Connection> one) {
        std::lock_guard<std::mutex> lock(mutex);
        free.push_back(std::move(one));
    }
};

static Waits<std::string> ask(Backend &backend, asio::io_context &io, const Request &request, Waiter waiter) {
    auto to = backend.take();
    if (!to) {
        to = std::make_unique<Connection>(tcp::socket(io));
        WAIT(to->socket., connect, backend.address);
        to->hand_over_at_once();
    }
    Request question{http::verb::get, request.target(), 11};
    question.set(http::field::host, backend.host);
    WAIT(http::, write, to->socket, question);
    Answer answer;
    WAIT(http::, read, to->socket, to->buffer, answer);
    if (answer.result() != http::status::ok) throw std::runtime_error("the backend answered otherwise than 200");
    backend.give(std::move(to));
    RETURN std::move(answer.body());
}

// Answers the requests of one client until it closes.
static Waits<void> attend(Connection client, asio::io_context &io, Backend *backend, Waiter waiter) {
    try {
        for (;;) {
            Request request;
            WAIT(http::, read, client.socket, client.buffer, request);
            Answer answer{http::status::ok, request.version()};
            answer.set(http::field::content_type, "text/plain");
            answer.keep_alive(request.keep_alive());
            if (!backend)
                answer.body() = "carefree " + std::string(request.target()) + "\n";
            else
#if defined(TASKS)
                answer.body() = co_await ask(*backend, io, request, waiter);
#else
                answer.body() = ask(*backend, io, request, waiter);
#endif
            answer.prepare_payload();
            WAIT(http::, write, client.socket, answer);
        }
    } catch (const boost::system::system_error &) {
        // The client has closed.
    } catch (const std::runtime_error &error) {
        std::cerr << error.what() << std::endl;
    }
}

static Waits<void> accept(tcp::acceptor &acceptor, asio::io_context &io, Backend *backend, Waiter waiter) {
    for (;;) {
        tcp::socket socket(io);
        WAIT(acceptor., accept, socket);
#if defined(THREADS)
        std::thread([&io, backend, waiter, client = Connection(std::move(socket))]() mutable {
            attend(std::move(client), io, backend, waiter);
        }).detach();
#elif defined(COROUTINES)
        asio::spawn(io, [&io, backend, client = Connection(std::move(socket))](Waiter waiter) mutable {
            attend(std::move(client), io, backend, waiter);
        });
#elif defined(TASKS)
        asio::co_spawn(io, attend(Connection(std::move(socket)), io, backend, waiter), asio::detached);
#endif
    }
}

static void serve(const Orders &orders) {
    const auto kind = orders.count("kind") ? orders.at("kind") : "";
    std::optional<Backend> backend;
    if (kind == "backend") backend.emplace(orders.at("backend"));
    else if (kind != "plain") throw std::runtime_error("there is no kind '" + kind + "' of servers here");
    Backend *const asked = backend ? &*backend : nullptr;

    asio::io_context io;
    tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    acceptor.listen(1024);
#if defined(THREADS)
    std::thread([&] { accept(acceptor, io, asked, {}); }).detach();
#else
#if defined(COROUTINES)
    asio::spawn(io, [&](Waiter waiter) { accept(acceptor, io, asked, waiter); });
#else
    asio::co_spawn(io, accept(acceptor, io, asked, {}), asio::detached);
#endif
    // One for each core that the process may use.
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
        std::thread([&] { io.run(); }).detach();
#endif
    std::cout << "{\"phase\":\"serving\",\"port\":" << acceptor.local_endpoint().port() << "}" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    std::cout << "{\"sample\":{\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]}}" << std::endl;
    // What waits for idle connections ends with the program.
    std::_Exit(0);
}

int main(int count, char **arguments) {
    Orders orders;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        const auto at = argument.find('=');
        if (at != std::string::npos) orders[argument.substr(0, at)] = argument.substr(at + 1);
    }
    try {
        serve(orders);
    } catch (const std::exception &error) {
        std::cout << "{\"failure\":{\"message\":\"" << error.what() << "\"}}" << std::endl;
    }
    return 1;
}
