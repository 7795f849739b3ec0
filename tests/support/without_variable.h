// WithoutVariable: an environment variable is not set while this object lives, such as one that ctest sets.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace dstrain {

class WithoutVariable {
 public:
  explicit WithoutVariable(std::string name) : name_(std::move(name)) {
    if (const char* const value = std::getenv(name_.c_str())) value_ = value;
    ::unsetenv(name_.c_str());
  }
  WithoutVariable(const WithoutVariable&) = delete;
  WithoutVariable& operator=(const WithoutVariable&) = delete;
  ~WithoutVariable() {
    if (value_) ::setenv(name_.c_str(), value_->c_str(), 1);
  }

 private:
  std::string name_;
  std::optional<std::string> value_;
};

}  // namespace dstrain
