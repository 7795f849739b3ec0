#include "launcher/report/watch/request.h"

#include <catch2/catch.hpp>

namespace dstrain::report {
namespace {

std::string get(const std::string& target, const std::string& fields = "Host: 127.0.0.1:8123\r\n") {
  return "GET " + target + " HTTP/1.1\r\n" + fields + "\r\n";
}

int refusal_of(const std::string& text) {
  const auto request = read_request(text);
  return request ? request->refusal : -1;
}

TEST_CASE("a browser's request is read") {
  const auto request = read_request(
      get("/?x=1", "Host: localhost:8123\r\nUser-Agent: x\r\nif-none-match:  \"a-1\" \r\n"));
  REQUIRE(request.has_value());
  CHECK(request->refusal == 0);
  CHECK(request->path == "/");
  CHECK(request->known_tag == "\"a-1\"");
  CHECK_FALSE(request->head_only);
  CHECK(read_request("HEAD / HTTP/1.0\n\n")->head_only);
  CHECK(refusal_of("HEAD / HTTP/1.0\n\n") == 0);
}

TEST_CASE("a request that has not arrived as a whole is waited for") {
  const std::string whole = get("/");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    CHECK_FALSE(read_request(whole.substr(0, bytes)).has_value());
  CHECK(read_request(whole).has_value());
}

TEST_CASE("methods but GET and HEAD, other hosts, and what is no HTTP are refused") {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"})
    CHECK(refusal_of(std::string(method) + " / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 405);
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil", "",
                           "[::1]:80", "10.0.0.1:8123", "localhost:80a"})
    CHECK(refusal_of(get("/", std::string("Host: ") + host + "\r\n")) == 403);
  for (const char* wrong :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n",
        "GET x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / a HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost localhost\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n",
        "\x16\x03\x01\n\n", "GET / HTTP/1.1\r\nHost: localhost\r\nA: \x01\r\n\r\n"})
    CHECK(refusal_of(wrong) == 400);
}

TEST_CASE("a request that is too long is refused before its end") {
  CHECK(refusal_of("GET /" + std::string(kLongestHead, 'a')) == 431);
  CHECK(refusal_of(get("/" + std::string(kLongestHead, 'a'))) == 431);
  CHECK(refusal_of(get("/" + std::string(1000, 'a'))) == 0);
}

}  // namespace
}  // namespace dstrain::report
