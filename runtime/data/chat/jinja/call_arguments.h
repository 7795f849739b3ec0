// Reads the arguments of a filter, test, function or method by their places and names.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/builtins.h"

namespace dstrain::jinja {

class ArgumentReader {
 public:
  // `names`: of the parameters, in order. Throws UserError, which names `what`, for arguments that there are not.
  ArgumentReader(Meter& meter, std::string_view what, const CallArguments& arguments,
                 std::initializer_list<std::string_view> names);

  // Returns null if the argument is not given.
  const Value* find(size_t place) const { return found_[place]; }
  // Throw UserError if the argument is not given, or of another type.
  const Value& at(size_t place) const;
  const std::string& text(size_t place) const;
  std::string text(size_t place, std::string_view otherwise) const;
  int64_t integer(size_t place, int64_t otherwise) const;
  bool flag(size_t place, bool otherwise) const;

 private:
  Meter& meter_;
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> found_;
};

}  // namespace dstrain::jinja
