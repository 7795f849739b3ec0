#include "launcher/cli/text_arguments.h"

#include <limits>

#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostSamples = 100'000;

// Adds the options of how tokens are chosen.
void add_sampling(CommandLine& line, Sampling& sampling) {
  const auto real = [&line](const char* name, const char* help, double& target, double least,
                            double most, const char* expected) {
    line.option(
        name, "F", help,
        [&target, least, most, expected](const std::string& option, const std::string& value) {
          target = number_of<double>(option, value, least, most, expected);
        });
  };
  constexpr double kAboveZero = std::numeric_limits<double>::min();
  real("--temperature", "1 as trained, 0 greedy (1)", sampling.temperature, 0, 1e6,
       "a number from 0 to 1000000");
  line.option("--top_k", "N", "draw from the N likeliest; 0: all (0)", integer(sampling.top_k, 0));
  real("--top_p", "draw from the likeliest that together have probability F (1)", sampling.top_p,
       kAboveZero, 1, "a number above 0, up to 1");
  real("--min_p", "draw from those with F times the largest probability; 0: all (0)",
       sampling.min_p, 0, 1, "a number from 0 to 1");
  real("--repetition_penalty",
       "make tokens that the text has less likely: positive logits / F, others * F (1)",
       sampling.repetition_penalty, kAboveZero, 1e6, "a number above 0, up to 1000000");
  line.option("--seed", "N", "same seed, same text (1337)",
              [&sampling](const std::string& option, const std::string& value) {
                sampling.seed =
                    number_of<uint64_t>(option, value, 0, ~uint64_t{0}, "an integer from 0 up");
              });
}

// Throws UserError if an option says how to draw, and another one that nothing is drawn.
void check_sampling(const std::string& command, const Sampling& sampling) {
  if (sampling.temperature > 0) return;
  const char* const drawing = sampling.top_k > 0   ? "--top_k"
                              : sampling.top_p < 1 ? "--top_p"
                              : sampling.min_p > 0 ? "--min_p"
                                                   : nullptr;
  if (drawing)
    fail_user(
        "dstrain {}: {} says what to draw from, and --temperature 0 takes the likeliest token: "
        "leave one out",
        command, drawing);
}

}  // namespace

void add_trained(CommandLine& line, TrainedName& name) {
  line.option("--run", "DIR", "the output directory of a run, or one of its checkpoints",
              text(name.run_dir));
  line.option("--model", "DIR", "a folder with config.json and weights, instead of a run",
              text(name.model));
  line.repeated("--ignore", "path.to.key",
                "treat a key of DIR's config.json, or several (a,b), as if it were not there",
                keys(name.ignored));
}

void add_device(CommandLine& line, TrainedName& name) {
  line.option("--device", "auto|cpu|cuda", "where to run (auto: on a GPU where there is one)",
              text(name.device));
}

void add_chat_template(CommandLine& line, std::string& chat_template) {
  line.option("--chat_template", "chatml|llama3|qwen|FILE",
              "how messages are written; otherwise as the directory says", text(chat_template));
}

void check_trained(const std::string& command, const TrainedName& name) {
  require(command, "--run DIR or --model DIR", !name.run_dir.empty() || !name.model.empty());
  if (!name.run_dir.empty() && !name.model.empty())
    fail_user("dstrain {} takes one of --run DIR and --model DIR", command);
  if (!name.ignored.empty() && name.model.empty())
    fail_user(
        "dstrain {}: --ignore is for a key of config.json in the folder of --model DIR, and --run "
        "has none",
        command);
}

Arguments parse_generate(const std::vector<std::string>& words) {
  GenerateArguments a;
  CommandLine line("generate",
                   "Continues prompts with a trained model. Without --prompt, --prompt_ids and "
                   "--prompts the prompt is the standard input.");
  line.example("dstrain generate --run runs/ds_config --prompt \"In the beginning\"",
               "continue a text");
  line.example("dstrain generate --run runs/ds_config --prompt To --temperature 0",
               "always by the likeliest token");
  line.example("dstrain generate --model ./gpt2 --prompt To", "with the model in a folder");
  line.example("dstrain generate --model ./gpt2 --prompts lines.txt --tokens 50",
               "of each line of a file, several at a time");
  line.example("dstrain generate --run runs/ds_config/checkpoints/step_400",
               "from a checkpoint; the prompt is the standard input");
  line.group(heading::kRead);
  add_trained(line, a);
  add_device(line, a);
  line.option("--prompt", "TEXT", "the text to continue",
              [&a](const std::string&, const std::string& value) { a.prompt = value; });
  line.option("--prompt_ids", "1,2,3", "the token ids to continue",
              [&a](const std::string& option, const std::string& value) {
                a.prompt_ids = token_ids(option, value);
              });
  line.option("--prompts", "FILE", "a file with a prompt in each line", text(a.prompts));
  line.group(heading::kWritten);
  line.option("--tokens", "N", "tokens to add (200)", integer(a.tokens, 0));
  line.option("--samples", "N", "texts of each prompt, drawn independently (1)",
              integer(a.samples, 1, kMostSamples));
  line.repeated("--stop", "TEXT", "end a text in front of this one in it",
                [&a](const std::string& option, const std::string& value) {
                  text(a.stops.emplace_back())(option, value);
                });
  add_sampling(line, a.sampling);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("generate", a);
  if (int{a.prompt.has_value()} + int{a.prompt_ids.has_value()} + int{!a.prompts.empty()} > 1)
    fail_user("dstrain generate takes one of --prompt TEXT, --prompt_ids 1,2,3 and --prompts FILE");
  check_sampling("generate", a.sampling);
  if (a.sampling.temperature == 0 && a.samples > 1)
    fail_user(
        "dstrain generate: --samples {} are one text {} times with --temperature 0: leave one out",
        a.samples, a.samples);
  return a;
}

Arguments parse_chat(const std::vector<std::string>& words) {
  ChatArguments a;
  CommandLine line("chat",
                   "Answers messages with a trained model: each line of the standard input is one. "
                   "/reset forgets the conversation, /exit or the end of the input ends the "
                   "program, and Ctrl-C ends an answer.");
  line.example("dstrain chat --model ./qwen", "with the model in a folder");
  line.example("dstrain chat --run runs/chats --chat_template chatml --temperature 0",
               "with a run's, always by the likeliest token");
  line.example("dstrain chat --model ./qwen --system \"Answer in one sentence.\"",
               "with a first message of the system's");
  line.group(heading::kRead);
  add_trained(line, a);
  add_device(line, a);
  add_chat_template(line, a.chat_template);
  line.option("--system", "TEXT", "the system's message, in front of all others", text(a.system));
  line.option(
      "--context", "N",
      "tokens of the conversation that are kept (4096, or the model's most if that is less)",
      integer(a.context, 16));
  line.group(heading::kWritten);
  line.option("--tokens", "N", "tokens of an answer, at most (512)", integer(a.tokens, 1));
  add_sampling(line, a.sampling);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  check_trained("chat", a);
  check_sampling("chat", a.sampling);
  return a;
}

}  // namespace dstrain
