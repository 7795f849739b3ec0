#include "runtime/data/chat/jinja/meter.h"

#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/text.h"

namespace dstrain::jinja {
namespace {

constexpr int kMostLevels = 400;
constexpr size_t kMostMessage =
    2000;  // bytes of a message, which may hold a text of the template's

}  // namespace

void Meter::step(int64_t count) {
  if ((left_.steps -= count) < 0)
    fail(fmt::format("rendering takes more than {} steps", most_.steps));
}

void Meter::bytes(size_t count) {
  if ((left_.bytes -= static_cast<int64_t>(count)) < 0)
    fail(fmt::format("rendering makes more than {} of texts and lists",
                     bytes_text(static_cast<double>(most_.bytes))));
}

void Meter::check_output(size_t bytes) const {
  if (static_cast<int64_t>(bytes) > most_.output)
    fail(fmt::format("a text is larger than {}", bytes_text(static_cast<double>(most_.output))));
}

Value Meter::list(std::vector<Value> items, bool tuple, bool generator) {
  step(std::ssize(items));
  bytes(kListBytes);
  Value list = list_of(std::move(items), tuple, generator);
  if (list.depth() > kDeepestValue)
    fail(fmt::format("a list holds a namespace, or is nested more than {} deep", kDeepestValue));
  return list;
}

Value Meter::text(std::string_view text) {
  bytes(text.size() + kTextBytes);
  return text;
}

void Meter::fail(std::string_view message) const {
  fail_user("{}: line {}: {}", source_, line_, message.substr(0, kMostMessage));
}

void Meter::fail_unknown(std::string_view what) const {
  fail(
      fmt::format("{} is not available in chat templates here: take one of dstrain's own "
                  "(chatml, llama3 or qwen), or a file without it, with "
                  "dstrain.data.chat_template of a run, or with --chat_template of a command",
                  what));
}

Level::Level(Meter& meter) : meter_(meter) {
  if (++meter_.levels_ <= kMostLevels) return;
  --meter_.levels_;
  meter_.fail(
      fmt::format("expressions, statements and macros are nested more than {} deep", kMostLevels));
}

}  // namespace dstrain::jinja
