#include "launcher/connection/secret.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

const std::string kSecret = "0123456789abcdef";

TEST_CASE("the HMAC is that of RFC 4231") {
  CHECK(hmac_sha256("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_sha256("", "").size() == 64);
  CHECK(random_hex() != random_hex());
  CHECK(equal_in_constant_time("ab", "ab"));
  CHECK_FALSE(equal_in_constant_time("ab", "ac"));
  CHECK_FALSE(equal_in_constant_time("ab", "abc"));
}

TEST_CASE("a secret is the contents of a private file without one line break at the end") {
  TempDir dir;
  const std::string file = dir / "secret";
  const auto write = [&](const std::string& text, mode_t mode) {
    std::filesystem::remove(file);
    dir.write("secret", text);
    REQUIRE(::chmod(file.c_str(), mode) == 0);
  };
  for (const mode_t mode : {0600, 0400}) {
    write(kSecret + "\n", mode);
    CHECK(take_secret(file) == kSecret);
  }
  write(kSecret, 0600);
  CHECK(take_secret(file) == kSecret);
  write(kSecret + "\n\n", 0600);
  CHECK(take_secret(file) == kSecret + "\n");
  write(std::string(4096, 'x') + "\n", 0600);
  CHECK(take_secret(file).size() == 4096);
  for (const std::string& text :
       {std::string("fifteen bytes..\n"), std::string(), std::string("\n"), std::string(4097, 'x'),
        std::string(100000, 'x')}) {
    write(text, 0600);
    CHECK_THROWS_AS(take_secret(file), UserError);
    CHECK_THROWS_WITH(take_secret(file),
                      Catch::Contains("--secret_file") &&
                          Catch::Contains("expected a secret of 16 to 4096 bytes"));
  }
  for (const mode_t mode : {0640, 0604, 0644, 0700, 0200, 04600}) {
    write(kSecret, mode);
    if (mode == 0200 && ::geteuid() != 0) continue;
    CHECK_THROWS_WITH(take_secret(file), Catch::Contains("expected 0600 or 0400"));
  }
}

TEST_CASE("a file that is none, or another user's, is no secret") {
  TempDir dir;
  CHECK_THROWS_WITH(take_secret(dir / "none"), Catch::Contains("No such file"));
  CHECK_THROWS_WITH(take_secret(dir.path()), Catch::Contains("it is not a regular file"));
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(take_secret(dir / "pipe"), Catch::Contains("it is not a regular file"));
  if (::geteuid() != 0) return;
  const std::string file = dir.write("other", kSecret);
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
  REQUIRE(::chown(file.c_str(), 12345, 12345) == 0);
  CHECK_THROWS_WITH(take_secret(file), Catch::Contains("it belongs to another user (uid 12345)"));
}

TEST_CASE("a secret of the environment is taken out of it") {
  ::setenv(kSecretVariable, kSecret.c_str(), 1);
  const char* const place = ::getenv(kSecretVariable);
  CHECK(take_secret("") == kSecret);
  CHECK(::getenv(kSecretVariable) == nullptr);
  CHECK(*place == '\0');
  CHECK(take_secret("").empty());
  ::setenv(kSecretVariable, "short", 1);
  CHECK_THROWS_WITH(take_secret(""), Catch::StartsWith("DSTRAIN_SECRET: expected a secret of"));
}

}  // namespace
}  // namespace dstrain
