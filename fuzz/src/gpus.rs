//! Pages of GPUs: the use is a fraction, lines of others change nothing, and one more GPU of the
//! endpoint's own counts exactly when it is busier.

use std::io;

use picker_core::{PageError, read_gpu_usage};

use crate::input::Input;

/// The endpoint's pod in a byte, and the page.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let pod = input.of(&PODS);
    let page = input.0;
    let read = read_gpu_usage(page, pod);
    assert!(
        read.is_ok_and(|it| (0.0..=1.0).contains(&it)) || read == Err(PageError::NoKnownFamily),
        "{read:?}"
    );
    let with = |lines: &str| read_gpu_usage(&[page, b"\n", lines.as_bytes()].concat(), pod);
    for others in [
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
        "DCGM_FI_DEV_MEM_COPY_UTIL{pod=\"a\"} 99",
        "DCGM_FI_DEV_GPU_UTIL{pod=\"a\"} NaN",
        "DCGM_FI_DEV_GPU_UTIL{pod=\"a\"} -5",
        "DCGM_FI_DEV_GPU_UTIL{pod=\"a\"",
        "# EOF\nDCGM_FI_DEV_GPU_UTIL 100",
    ] {
        assert_eq!(with(others), read, "{others:?} behind it");
    }
    if pod.is_some() {
        assert_eq!(with("DCGM_FI_DEV_GPU_UTIL{pod=\"another\"} 100"), read);
    }
    // Behind the end of a page nothing is read.
    let is_ended = with("DCGM_FI_DEV_GPU_UTIL 100") == read && read != Ok(1.0);
    if !is_ended {
        let before = read.unwrap_or(0.0);
        for percent in [0, 50, 250] {
            let own = format!(
                "DCGM_FI_DEV_GPU_UTIL{{gpu=\"9\",pod=\"{}\"}} {percent}",
                pod.unwrap_or("b")
            );
            let usage = (f64::from(percent) / 100.0).min(1.0);
            assert_eq!(with(&own), Ok(before.max(usage)), "{own}");
        }
    }
    if let Ok(usage) = read {
        let of_all = read_gpu_usage(page, None);
        assert!(
            of_all.is_ok_and(|it| it >= usage),
            "{of_all:?} of all, {usage}"
        );
    }
}

/// Pages with the GPUs of two pods and of none.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let pages = [
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\"} 30\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",pod=\"b\"} 90 1700000000\n",
        "DCGM_FI_DEV_GPU_UTIL 7\nDCGM_FI_DEV_GPU_UTIL{pod=\"\"} 1e1\n# EOF\n",
        "DCGM_FI_DEV_GPU_UTIL{pod=\"a\\\\\"} 120\nDCGM_FI_DEV_GPU_UTIL NaN",
        "<html></html>",
    ];
    let of_pod = |number: u8| {
        let pages = pages.iter();
        pages.map(move |page| [&[number][..], page.as_bytes()].concat())
    };
    Ok((0..PODS.len() as u8).flat_map(of_pod).collect())
}

const PODS: [Option<&str>; 3] = [None, Some("a"), Some("b")];
