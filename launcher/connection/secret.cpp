#include "launcher/connection/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launcher/process/descriptor.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr size_t kShortestSecret = 16, kLongestSecret = 4096;
constexpr size_t kHashBytes = 32;

std::string hex_text(const std::array<unsigned char, kHashBytes>& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void check_length(const std::string& source, const std::string& secret) {
  if (secret.size() < kShortestSecret || secret.size() > kLongestSecret)
    fail_user("{}: expected a secret of {} to {} bytes, got {}; 'openssl rand -hex 32' makes one",
              source, kShortestSecret, kLongestSecret, secret.size());
}

std::string read_secret(const std::string& path) {
  // O_NONBLOCK: open() of a pipe would wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0)
    fail_user("--secret_file {}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_user("--secret_file {}: it is not a regular file", path);
  if (status.st_uid != ::geteuid())
    fail_user("--secret_file {}: it belongs to another user (uid {}): take a copy of your own",
              path, status.st_uid);
  const unsigned mode = status.st_mode & 07777U;
  if (mode != 0600 && mode != 0400)
    fail_user("--secret_file {}: its mode is {:04o}, expected 0600 or 0400: chmod 600 it", path,
              mode);
  std::string secret(kLongestSecret + 2, '\0');  // a line break, and one byte that is too much
  const ssize_t bytes = ::read(file.get(), secret.data(), secret.size());
  if (bytes < 0) fail_user("--secret_file {}: {}", path, std::strerror(errno));
  secret.resize(static_cast<size_t>(bytes));
  if (secret.ends_with('\n')) secret.pop_back();
  check_length("--secret_file " + path, secret);
  return secret;
}

}  // namespace

std::string take_secret(const std::string& file) {
  std::string secret;
  if (char* variable = std::getenv(kSecretVariable); variable != nullptr) {
    secret = variable;
    // Also from what /proc shows of this process.
    OPENSSL_cleanse(variable, secret.size());
    ::unsetenv(kSecretVariable);
    if (file.empty()) check_length(kSecretVariable, secret);
  }
  return file.empty() ? secret : read_secret(file);
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, kHashBytes> hash{};
  unsigned int bytes = 0;
  const bool good = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                           hash.data(), &bytes) != nullptr;
  check(good && bytes == kHashBytes, "libcrypto computes no HMAC-SHA-256");
  return hex_text(hash);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_hex() {
  std::array<unsigned char, kHashBytes> bytes{};
  if (::RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    fail_run("the system has no random numbers");
  return hex_text(bytes);
}

}  // namespace dstrain
