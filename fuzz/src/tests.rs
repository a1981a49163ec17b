use super::*;

#[test]
fn what_is_claimed_holds_of_all_seeds_and_of_all_inputs_that_once_failed() {
    for target in TARGETS {
        let seeds = (target.seeds)().unwrap();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| (target.check)(seed));
        for path in target.regressions().unwrap() {
            println!("{}", path.display());
            (target.check)(&fs::read(path).unwrap());
        }
    }
}
