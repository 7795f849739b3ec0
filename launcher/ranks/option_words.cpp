#include "launcher/ranks/option_words.h"

#include <algorithm>

namespace dstrain {

std::vector<std::string> without_options(const std::vector<std::string>& words,
                                         const std::vector<std::string_view>& names) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string option = words[i].substr(0, words[i].find('='));
    if (std::ranges::find(names, option) == names.end())
      rest.push_back(words[i]);
    else if (option == words[i])
      ++i;  // and its value
  }
  return rest;
}

}  // namespace dstrain
