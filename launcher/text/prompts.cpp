#include "launcher/text/prompts.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>

#include "launcher/cli/option_readers.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestPrompts = int64_t{64} << 20;

// Returns the text of the standard input, without a line break at its end.
std::string read_standard_input() {
  if (::isatty(STDIN_FILENO) == 1)
    fail_user(
        "dstrain generate needs a prompt: --prompt TEXT, --prompt_ids 1,2,3, --prompts FILE, or a "
        "text on its standard input");
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// Returns the ids of a prompt that is text, or a list of ids where the model's texts are ids.
std::vector<int32_t> ids_of(const std::string& place, const std::string& text,
                            const TextModel& model) {
  if (!model.of_ids()) return model.encode(place, text);
  return text.empty() ? std::vector<int32_t>() : token_ids(place, text);
}

std::vector<int32_t> checked(const std::string& place, std::vector<int32_t> ids,
                             const TextModel& model) {
  if (ids.empty()) fail_user("{}: the prompt is empty; give at least one character", place);
  const int64_t all = model.trained.job.model.vocabulary();
  for (const int32_t id : ids)
    if (id >= all) fail_user("{}: {} is outside the vocabulary of {} ids", place, id, all);
  return ids;
}

std::vector<std::vector<int32_t>> prompts_in(const std::string& file, const TextModel& model) {
  const std::string text = read_input_file(file, "the prompts", kLargestPrompts);
  std::vector<std::vector<int32_t>> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    const std::string place = fmt::format("{}:{}", file, ++number);
    prompts.push_back(checked(place, ids_of(place, line, model), model));
    begin = end + 1;
  }
  if (prompts.empty())
    fail_user("--prompts {}: the file is empty; give a prompt in each line", file);
  return prompts;
}

}  // namespace

std::vector<std::vector<int32_t>> prompts_of(const GenerateArguments& arguments,
                                             const TextModel& model) {
  const std::string &run = arguments.run_dir, &folder = arguments.model;
  if (arguments.prompt && model.of_ids())
    fail_user("--prompt: the model in {} was trained on token ids; give --prompt_ids 1,2,3",
              folder.empty() ? run : folder);
  if (!arguments.prompts.empty()) return prompts_in(arguments.prompts, model);
  if (arguments.prompt_ids) return {checked("--prompt_ids", *arguments.prompt_ids, model)};
  if (arguments.prompt)
    return {checked("--prompt", model.encode("--prompt", *arguments.prompt), model)};
  const std::string place = "standard input";
  return {checked(place, ids_of(place, read_standard_input(), model), model)};
}

}  // namespace dstrain
