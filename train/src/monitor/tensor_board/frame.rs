//! Records of the files that TensorFlow calls TFRecord.

/// A record: the length of the data (8 bytes, little endian), its checksum, the data, its checksum (4 bytes each).
pub(super) fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_checksum(&length), data, &masked_checksum(data)].concat()
}

/// The CRC-32C, rotated and shifted so that the checksum of data that holds checksums is as good as any other
/// (`masked_crc` of TensorFlow's `record_writer.h`).
fn masked_checksum(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::framed;

    /// The event that files begin with, at time 1, and what `RecordWriter` of TensorBoard's Python package makes of it.
    #[test]
    fn frames_are_those_of_tensor_board() {
        let data = b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x0dbrain.Event:2";
        let written = framed(data);
        assert_eq!(written[..8], [24, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(written[8..12], LENGTH_CHECKSUM);
        assert_eq!((&written[12..36], &written[36..]), (&data[..], &DATA_CHECKSUM[..]));
    }

    const LENGTH_CHECKSUM: [u8; 4] = [0xa3, 0x7f, 0x4b, 0x22];
    const DATA_CHECKSUM: [u8; 4] = [0x86, 0xbf, 0x57, 0x7a];
}
