// The server of a page with well-behaved and hostile clients.
#include "launcher/report/watch/page_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/launcher/report/run_files.h"

namespace dstrain::report {
namespace {

using test::contains;
using test::Runs;
using test::step_line;

// A server of a made-up run, in a thread of its own.
class Served {
 public:
  Served() : server_(runs_.make("a", step_line(1, 4.125)), 0), thread_([this] { serve(); }) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() { stop(); }

  void stop() {
    if (!thread_.joinable()) return;
    CHECK(::write(stop_.write.get(), "x", 1) == 1);
    thread_.join();
  }
  void append(const std::string& line) const {
    std::ofstream(runs_.folder / "a/metrics.jsonl", std::ios::app) << line;
  }
  Descriptor connect() const {
    const std::string address = server_.address();
    const int port = std::stoi(address.substr(address.rfind(':') + 1));
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in where = *socket_address("127.0.0.1", port);
    REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
    return socket;
  }
  // Returns all that the server answers to a request.
  std::string answer(const std::string& request) const {
    const Descriptor socket = connect();
    send(socket, request);
    return rest(socket);
  }
  static void send(const Descriptor& socket, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t count =
          ::send(socket.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return;  // the server has had enough
      done += static_cast<size_t>(count);
    }
  }
  static std::string rest(const Descriptor& socket) {
    std::string text;
    std::array<char, 65536> bytes{};
    while (true) {
      const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (count <= 0) return text;
      text.append(bytes.data(), static_cast<size_t>(count));
    }
  }

 private:
  void serve() { server_.serve(stop_.read.get()); }

  Runs runs_;
  Pipe stop_;
  PageServer server_;
  std::thread thread_;
};

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string field(const std::string& answer, const std::string& name) {
  const size_t at = answer.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

TEST_CASE("a browser gets the page, and what refreshes it") {
  const Served served;
  const std::string page = served.answer(kGet);
  CHECK(page.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(contains(page, ">4.125<"));
  CHECK(contains(page, "src=\"/refresh.js\""));
  CHECK(page.size() - page.find("\r\n\r\n") - 4 == std::stoul(field(page, "Content-Length")));
  const std::string head = served.answer("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(field(head, "Content-Length") == field(page, "Content-Length"));
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK(contains(served.answer("GET /refresh.js HTTP/1.1\r\nHost: localhost\r\n\r\n"), "fetch("));
}

TEST_CASE("the page follows the run, and is not sent again while it is the same") {
  const Served served;
  const std::string tag = field(served.answer(kGet), "ETag");
  const std::string known =
      "GET / HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: " + tag + "\r\n\r\n";
  CHECK(served.answer(known).starts_with("HTTP/1.1 304 "));
  served.append(step_line(2, 3.375));
  std::string answer;
  for (int i = 0; i < 200 && !contains(answer, ">3.375<"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    answer = served.answer(known);
  }
  CHECK(contains(answer, ">3.375<"));
  CHECK(field(answer, "ETag") != tag);
}

TEST_CASE("other methods and paths are refused") {
  const Served served;
  const std::string post =
      served.answer("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" +
                    std::string(300'000, 'x'));
  CHECK(post.starts_with("HTTP/1.1 405 "));
  CHECK(field(post, "Allow") == "GET, HEAD");
  for (const char* path :
       {"/../../etc/passwd", "/etc/passwd", "/metrics.jsonl", "/%2e%2e/", "//", "/."})
    CHECK(served.answer(std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
              .starts_with("HTTP/1.1 404 "));
  CHECK(served.answer("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
  CHECK(served.answer("GET /" + std::string(1'000'000, 'a')).starts_with("HTTP/1.1 431 "));
  CHECK(served.answer("\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
  CHECK(served.answer(kGet).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("many clients that say nothing, or a part, keep nobody from the page") {
  const Served served;
  std::vector<Descriptor> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(served.connect());
    if (i % 2 == 0) Served::send(idle.back(), "GET / HT");
    if (i % 5 == 0) Served::send(idle.back(), "TP/1.1\r\nHost: localhost\r\n\r\n");  // never reads
  }
  CHECK(served.answer(kGet).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("a client that goes away in the middle does no harm, and the server ends when asked") {
  Served served;
  for (int i = 0; i < 50; ++i) {
    const Descriptor socket = served.connect();
    Served::send(socket, kGet.substr(0, static_cast<size_t>(i)));
    if (i % 3 == 0) Served::send(socket, kGet);
    const linger at_once{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  const Descriptor open = served.connect();
  CHECK(served.answer(kGet).starts_with("HTTP/1.1 200 "));
  served.stop();
}

}  // namespace
}  // namespace dstrain::report
