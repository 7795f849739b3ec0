#include "models/exported/lower/graph_facts.h"

#include "runtime/core/error.h"

namespace dstrain::exported {

InputRole GraphFacts::role_of(std::string_view input) const {
  const auto role = roles.find(input);
  check(role != roles.end(), "input {} has no role", input);
  return role->second;
}

}  // namespace dstrain::exported
