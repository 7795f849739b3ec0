#include "runtime/data/chat/jinja/call_arguments.h"

#include <algorithm>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain::jinja {

ArgumentReader::ArgumentReader(Meter& meter, std::string_view what, const CallArguments& arguments,
                               std::initializer_list<std::string_view> names)
    : meter_(meter), what_(what), names_(names), found_(names.size()) {
  if (arguments.given.size() > names_.size())
    meter_.fail(fmt::format("{} takes at most {}, and {} are given", what_,
                            counted(static_cast<int64_t>(names_.size()), "argument"),
                            arguments.given.size()));
  for (size_t i = 0; i < arguments.given.size(); ++i) found_[i] = &arguments.given[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::ranges::find(names_, name);
    if (at == names_.end())
      meter_.fail_unknown(fmt::format("the argument '{}' of {}", printable(name), what_));
    const Value*& place = found_[static_cast<size_t>(at - names_.begin())];
    if (place) meter_.fail(fmt::format("the argument '{}' of {} is given twice", name, what_));
    place = &value;
  }
}

const Value& ArgumentReader::at(size_t place) const {
  if (!found_[place]) meter_.fail(fmt::format("{} needs the argument '{}'", what_, names_[place]));
  return *found_[place];
}

const std::string& ArgumentReader::text(size_t place) const {
  return text_in(meter_, at(place), fmt::format("the argument '{}' of {}", names_[place], what_));
}

std::string ArgumentReader::text(size_t place, std::string_view otherwise) const {
  return found_[place] ? text(place) : std::string(otherwise);
}

int64_t ArgumentReader::integer(size_t place, int64_t otherwise) const {
  if (!found_[place] || found_[place]->is_none()) return otherwise;
  if (const auto number = found_[place]->integer()) return *number;
  meter_.fail(fmt::format("the argument '{}' of {} must be an int, and is {}", names_[place], what_,
                          found_[place]->type_name()));
}

bool ArgumentReader::flag(size_t place, bool otherwise) const {
  return found_[place] ? found_[place]->truth() : otherwise;
}

}  // namespace dstrain::jinja
