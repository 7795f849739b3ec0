// The secret of a run, by which its processes on several hosts know each other, and what is computed with it. Invariant:
// no process that this one starts finds the secret in its environment.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// The variable that holds a secret.
inline constexpr const char* kSecretVariable = "DSTRAIN_SECRET";

// Returns the secret: the contents of `file` without a line break at the end, or of kSecretVariable if `file` is empty.
// Empty if neither is given. Removes the variable from this process. Throws UserError unless the file is a regular file
// of this user with mode 0600 or 0400, and the secret has 16 to 4096 bytes.
std::string take_secret(const std::string& file);

// Returns the HMAC-SHA-256 of `text` in 64 hex digits.
std::string hmac_sha256(std::string_view key, std::string_view text);

// Returns whether two texts are equal, in a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Returns 64 random hex digits, which nobody can foresee. Throws RunError if the system has none.
std::string random_hex();

}  // namespace dstrain
