//! How evenly tenants are served who all want more than they get.

/// What tenants asked for and what they got, in any unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    /// What a tenant asked for.
    pub asked: f64,
    /// What it got of that.
    pub served: f64,
}

/// How evenly a band's tenants were served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fairness {
    /// How many asked for more than an equal share, so that something of theirs always waits.
    pub competing: usize,
    /// Jain's index over what those got: 1 when they got the same, one by their number when one got
    /// everything. `None` when fewer than two compete.
    pub jain: Option<f64>,
    /// The least part of what it asked for that any of the others got; `None` when all compete.
    pub modest_least: Option<f64>,
}

/// Judges how what there was to give was given to `tenants`.
///
/// The share that is equal is found by filling up: who asks for less gets that, and the rest is
/// shared by the others.
pub fn fairness(tenants: &[Demand]) -> Fairness {
    let share = equal_share(tenants);
    let (competing, modest): (Vec<Demand>, Vec<Demand>) =
        tenants.iter().partition(|it| it.asked > share);
    let served: Vec<f64> = competing.iter().map(|it| it.served).collect();
    let parts = modest.iter().filter(|it| it.asked > 0.0);
    Fairness {
        competing: served.len(),
        jain: (served.len() > 1).then(|| jain(&served)),
        modest_least: parts.map(|it| it.served / it.asked).reduce(f64::min),
    }
}

/// Jain's index: the square of the mean by the mean of the squares; 1 when all are 0.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|it| it * it).sum();
    if squares > 0.0 {
        sum * sum / (values.len() as f64 * squares)
    } else {
        1.0
    }
}

/// The most that any tenant would have got, had what was served been filled up evenly.
fn equal_share(tenants: &[Demand]) -> f64 {
    let mut asked: Vec<f64> = tenants.iter().map(|it| it.asked).collect();
    asked.sort_by(f64::total_cmp);
    let mut left: f64 = tenants.iter().map(|it| it.served).sum();
    let mut share = 0.0;
    for (place, asked) in asked.iter().enumerate() {
        share = left / (tenants.len() - place) as f64;
        if *asked > share {
            return share;
        }
        left -= asked;
    }
    // All of them got what they asked for.
    share.max(asked.last().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tenants: &[(f64, f64)], competing: usize, jain: Option<f64>, least: Option<f64>) {
        let tenants: Vec<Demand> = tenants
            .iter()
            .map(|&(asked, served)| Demand { asked, served })
            .collect();
        let expected = Fairness {
            competing,
            jain,
            modest_least: least,
        };
        assert_eq!(fairness(&tenants), expected);
    }

    #[test]
    fn those_compete_who_ask_for_more_than_an_equal_share() {
        // 30 to give: 4 and 6 are less than a third, then 20 for two.
        let fair = [(4.0, 4.0), (40.0, 10.0), (6.0, 6.0), (20.0, 10.0)];
        check(&fair, 2, Some(1.0), Some(1.0));
        // 30 to give by what is asked: (20 + 6)² by 2·(400 + 36)
        let unfair = [(4.0, 1.0), (40.0, 20.0), (6.0, 3.0), (20.0, 6.0)];
        check(&unfair, 2, Some(676.0 / 872.0), Some(0.25));
    }

    #[test]
    fn nobody_competes_where_there_is_enough() {
        check(&[(4.0, 4.0), (6.0, 6.0), (0.0, 0.0)], 0, None, Some(1.0));
        check(&[], 0, None, None);
        check(&[(1.0, 0.0), (2.0, 0.0)], 2, Some(1.0), None);
    }

    #[test]
    fn the_index_of_one_who_gets_everything_is_one_by_their_number() {
        for (values, expected) in [
            (vec![3.0, 3.0, 3.0], 1.0),
            (vec![5.0, 0.0, 0.0, 0.0], 0.25),
            (vec![1.0, 2.0, 3.0], 36.0 / 42.0),
        ] {
            assert_eq!(jain(&values), expected);
        }
    }
}
