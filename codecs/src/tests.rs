use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/fixtures/codings/", $name)).as_slice()
    };
}

/// Bodies that are one and the same once decoded.
const BODIES: [(Coding, &[u8]); 7] = [
    (Coding::Gzip, fixture!("body.gz")),
    (Coding::Deflate, fixture!("body.zlib")),
    (Coding::Deflate, fixture!("body.deflate")),
    (Coding::Brotli, fixture!("body-window-10.br")),
    (Coding::Brotli, fixture!("body-window-22.br")),
    (Coding::Zstd, fixture!("body.zst")),
    (Coding::Zstd, fixture!("body-window-8m.zst")),
];

const BODY: &[u8] = fixture!("body.json");

fn decode<'a>(
    coding: Coding,
    limit: u64,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new(coding, limit);
    let mut decoded = Vec::new();
    let mut out = |piece: &[u8]| decoded.extend_from_slice(piece);
    for chunk in chunks {
        decoder.push(chunk, &mut out)?;
    }
    decoder.finish(&mut out)?;
    Ok(decoded)
}

#[test]
fn every_coding_is_decoded_however_the_body_is_cut() {
    for (coding, body) in BODIES {
        for size in [1, 2, 3, 7, 100, body.len()] {
            let decoded = decode(coding, BODY.len() as u64, body.chunks(size));
            assert_eq!(
                decoded.as_deref(),
                Ok(BODY),
                "{coding:?} in chunks of {size}"
            );
        }
    }
}

#[test]
fn members_and_frames_may_follow_one_another() {
    for (coding, body) in [BODIES[0], BODIES[5]] {
        let decoded = decode(coding, 1 << 20, [body, body]);
        assert_eq!(decoded, Ok([BODY, BODY].concat()), "{coding:?}");
    }
}

#[test]
fn a_body_that_is_cut_or_goes_on_is_corrupt() {
    for (coding, body) in BODIES {
        for at in 0..body.len() {
            let decoded = decode(coding, 1 << 20, [&body[..at]]);
            assert_eq!(decoded, Err(DecodeError::Corrupt), "{coding:?} cut at {at}");
        }
        let decoded = decode(coding, 1 << 20, [body, b"xx"]);
        assert_eq!(decoded, Err(DecodeError::Corrupt), "{coding:?} goes on");
    }
    for coding in [Coding::Brotli, Coding::Deflate, Coding::Gzip, Coding::Zstd] {
        assert_eq!(
            decode(coding, 9, []),
            Err(DecodeError::Corrupt),
            "{coding:?}"
        );
    }
}

#[test]
fn a_decoded_body_has_a_limit() {
    for (coding, body) in BODIES {
        let limit = BODY.len() as u64;
        assert!(decode(coding, limit, [body]).is_ok());
        let decoded = decode(coding, limit - 1, [body]);
        assert_eq!(decoded, Err(DecodeError::TooLarge), "{coding:?}");
    }
}

#[test]
fn a_bomb_ends_at_the_limit() {
    for (coding, bomb) in [
        (Coding::Brotli, fixture!("bomb.br")),
        (Coding::Gzip, fixture!("bomb.gz")),
        (Coding::Zstd, fixture!("bomb.zst")),
    ] {
        assert!(bomb.len() < 5000);
        for limit in [0, 1, 1 << 20, (4 << 20) - 1] {
            let (mut bytes, mut longest) = (0, 0);
            let mut out = |piece: &[u8]| {
                bytes += piece.len() as u64;
                longest = piece.len().max(longest);
            };
            let mut decoder = Decoder::new(coding, limit);
            let pushed = decoder.push(bomb, &mut out);
            let result = pushed.and_then(|()| decoder.finish(&mut out));
            assert_eq!(result, Err(DecodeError::TooLarge), "{coding:?}");
            assert!(bytes <= limit, "{coding:?} handed on {bytes} bytes");
            assert!(longest <= 128 << 10, "{coding:?} holds {longest} bytes");
        }
        assert_eq!(
            decode(coding, 4 << 20, [bomb]).map(|it| it.len()),
            Ok(4 << 20)
        );
    }
}

#[test]
fn a_window_has_a_limit() {
    for (coding, body) in [
        (Coding::Brotli, fixture!("body-window-24.br")),
        (Coding::Brotli, &[0x0D | 0x02]),
        // A large window, which is no part of the coding.
        (Coding::Brotli, &[0x11]),
        (Coding::Zstd, fixture!("window-16m.zst")),
    ] {
        let decoded = decode(coding, 64 << 20, [body]);
        assert_eq!(decoded, Err(DecodeError::WindowTooLarge), "{body:?}");
    }
}

#[test]
fn damage_ends_in_an_error_or_in_other_bytes_and_never_in_a_panic() {
    let mut draw = 1_u64;
    let mut below = |end: usize| {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        (draw >> 11) as usize % end
    };
    for round in 0..2000 {
        let (coding, body) = BODIES[round % BODIES.len()];
        let mut body = body.to_vec();
        for _ in 0..=below(3) {
            let at = below(body.len());
            body[at] = below(256) as u8;
        }
        let cut = below(body.len());
        let (first, second) = body.split_at(cut);
        let whole = decode(coding, 1 << 20, [body.as_slice()]);
        assert_eq!(
            decode(coding, 1 << 20, [first, second]),
            whole,
            "round {round}"
        );
    }
}

#[test]
fn only_one_known_coding_is_decoded() {
    for (header, coding) in [
        ("gzip", Some(Coding::Gzip)),
        (" GZIP ", Some(Coding::Gzip)),
        ("x-gzip", Some(Coding::Gzip)),
        ("br", Some(Coding::Brotli)),
        ("deflate", Some(Coding::Deflate)),
        ("zstd", Some(Coding::Zstd)),
        ("gzip, br", None),
        ("identity", None),
        ("compress", None),
        ("", None),
    ] {
        assert_eq!(Coding::named(header), coding, "{header}");
    }
}
