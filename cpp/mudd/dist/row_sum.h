// RowSum: the sum of PieceSum for a table of which a step reads few rows. Rows of zeros are not sent: a bitmap
// of the sent rows precedes each message of rows. Sums are never -0, so an absent row changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/dist/collectives.h"

namespace mudd::dist {

class RowSum final : public Machine {
 public:
  // width: elements of a row; pieces are whole rows.
  RowSum(Link link, float* data, std::vector<OwnedRange> pieces, int64_t width, const Wire& wire = {});

 private:
  // One partner of this round: the rows sent to it, and the rows received from it for the rows that this member
  // keeps.
  struct Partner {
    int member;
    std::vector<uint8_t> sent_bits, got_bits;
    WireValues sent, got;
    int64_t added = 0;  // rows of `got`
  };
  enum class Stage { bits, rows, add };

  bool next_round() override;
  bool choose_partners();
  void add_partner(int member, const Ranges& away);
  void exchange_bits();
  void exchange_rows();
  void add_rows();

  float* data_;
  std::vector<OwnedRange> pieces_;
  int64_t width_;
  Wire wire_;
  Ranges mine_;
  std::vector<Partner> partners_;
  std::vector<float> zeros_;  // a row that a member does not have
  Stage stage_ = Stage::bits;
  int distance_ = 0;  // of the round in flight; 0: none yet
};

}  // namespace mudd::dist
