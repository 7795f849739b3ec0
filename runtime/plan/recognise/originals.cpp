#include <algorithm>

#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {

void read_originals(Program& program) {
  const Sources sources(program);
  for (Instruction& op : program.instructions)
    for (BufferId& id : op.reads) {
      // What an op changes in place stays its own.
      if (id == kNone || std::ranges::find(op.writes, id) != op.writes.end()) continue;
      const Sources::Copied copied = sources.copied(id, op.sublayer);
      const Buffer &original = program.at(copied.buffer), &copy = program.at(id);
      const bool same = original.parameter < 0 && original.dtype == copy.dtype &&
                        original.shape.elements() == copy.shape.elements() &&
                        original.shape[-1] == copy.shape[-1] &&
                        is_dense(copied.elements.view, copied.elements.space);
      if (same && sources.is_written_once(copied.buffer)) id = copied.buffer;
    }
}

}  // namespace dstrain
